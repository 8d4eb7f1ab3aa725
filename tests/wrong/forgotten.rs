//! What is made and not returned.
#![deny(unused_must_use)]
use longhaul::{Next, Result, Run, Workflow, workflow};

pub struct Desk;

#[workflow]
mod desk {
    use super::*;

    impl Workflow for Desk {
        const NAME: &'static str = "desk";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Desk>) -> Result<Next<Desk>> {
        run.sleep(std::time::Duration::ZERO);
        //~ nothing is asked for until `.then(step)`
        run.human::<bool>("Keep it?");
        //~ nobody is asked until `.then(step)`
        run.fork();
        //~ no branch is opened until `.join(step)`
        Next::<Desk>::finish("x".into());
        //~ a step must return it
        Ok(Next::finish("y".into()))
    }
}

//! What one step gives is not what the next one takes.
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
        Ok(run.call(step::count, "abc".into()).then(step::told))
        //~ expected this to be `usize`
    }

    #[step]
    async fn count(_: &mut Run<Desk>, text: String) -> Result<Next<Desk, usize>> {
        Ok(Next::finish(text))
        //~ expected `usize`, found `String`
    }

    #[step]
    async fn told(run: &mut Run<Desk>, text: String) -> Result<Next<Desk>> {
        if text.is_empty() {
            return Ok(Next::goto(step::count, text));
            //~ expected `Next<Desk, String>`, found `Next<Desk, usize>`
        }
        if text.len() == 1 {
            return Ok(run.call(step::count, 7).then(step::counted));
            //~ expected `String`, found integer
        }
        Ok(run.call(step::count, text).carry(7).then(step::counted))
        //~ expected this to be `(usize, {integer})`
    }

    #[step]
    async fn counted(_: &mut Run<Desk>, count: usize) -> Result<Next<Desk>> {
        Ok(Next::finish(count.to_string()))
    }
}

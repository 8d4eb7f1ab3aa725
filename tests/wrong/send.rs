//! A future that holds what cannot be sent over an await.
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
    async fn open(_: &mut Run<Desk>) -> Result<Next<Desk>> {
    //~ has type `Rc<String>` which is not `Send`
        let text = std::rc::Rc::new("shared".to_owned());
        std::future::ready(()).await;
        Ok(Next::finish(text.to_string()))
    }
}

//! Steps that there are not, or not here.
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
        let _ = &run.input;
        Ok(Next::goto(step::finshed, ()))
        //~ a unit struct with a similar name exists
    }

    #[step]
    async fn function(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::goto(finished, ()))
        //~ expected `step::name`, the handle of a function under `#[step]`
    }

    #[step]
    async fn foreign(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::goto(shop::step::buy, ()))
        //~ expected `Next<Desk, String>`, found `Next<Shop, String>`
    }

    #[step]
    async fn finished(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("done".into()))
    }
}

pub struct Shop;

#[workflow]
mod shop {
    use super::*;

    impl Workflow for Shop {
        const NAME: &'static str = "shop";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::buy;
    }

    #[step]
    pub async fn buy(_: &mut Run<Shop>) -> Result<Next<Shop>> {
        Ok(Next::finish("bought".into()))
    }
}

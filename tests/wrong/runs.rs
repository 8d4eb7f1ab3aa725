//! A step of this workflow that takes the run of another one.
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
        Ok(Next::goto(step::sell, ()))
    }

    #[step]
    async fn sell(_: &mut Run<Shop>) -> Result<Next<Desk>> {
    //~ expected `&mut Run<Shop>`, found `&mut Run<Desk>`
        Ok(Next::finish("sold".into()))
    }

    #[step]
    async fn returns(_: &mut Run<Desk>) -> Result<Next<Shop>> {
    //~ expected `Result<Next<Desk, String>, StepError>`, found `Result<Next<Shop, String>, StepError>`
        Ok(Next::finish("sold".into()))
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

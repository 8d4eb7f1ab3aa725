//! What stands in `#[step(..)]` and cannot.
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

    #[step(retries = 3)]
    //~ it has `attempts`, `backoff`, `timeout`, `crash_limit`, `blocking`
    async fn open(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(timeout = "half an hour")]
    //~ `half an hour` is no duration
    async fn a(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(timeout = 30)]
    //~ `timeout` is a duration in quotes
    async fn b(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(attempts = 0)]
    //~ at least 1
    async fn c(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(attempts = "3")]
    //~ `attempts` is a whole number: `attempts = 3`
    async fn d(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(backoff = "1m..1s")]
    //~ goes backwards
    async fn e(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(blocking, blocking)]
    //~ given twice
    async fn f(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step(attempts)]
    //~ `attempts` is a whole number: `attempts = 3`
    async fn g(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step = "3"]
    //~ write `#[step(..)]`
    async fn h(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }
}

//! Functions that are no steps.
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
        //~ `open` is not a step of `Desk`
    }

    #[step]
    async fn open() -> Result<Next<Desk>> {
    //~ a step is `async fn name(run: &mut Run<W>) -> Result<Next<W>>`
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn owned(_: Run<Desk>) -> Result<Next<Desk>> {
    //~ a step is `async fn name(run: &mut Run<W>) -> Result<Next<W>>`
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn shared(_: &Run<Desk>) -> Result<Next<Desk>> {
    //~ a step is `async fn name(run: &mut Run<W>) -> Result<Next<W>>`
        Ok(Next::finish("x".into()))
    }

    #[step]
    fn waits(_: &mut Run<Desk>) -> Result<Next<Desk>> {
    //~ this is not async
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn borrows(_: &mut Run<Desk>, text: &str) -> Result<Next<Desk>> {
    //~ take an owned type
        Ok(Next::finish(text.into()))
    }

    #[step]
    async fn any(_: &mut Run<Desk>, text: impl Into<String>) -> Result<Next<Desk>> {
    //~ name a concrete type
        Ok(Next::finish(text.into()))
    }

    #[step]
    async fn generic<T>(_: &mut Run<Desk>, text: T) -> Result<Next<Desk>> {
    //~ no type parameters
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn two(_: &mut Run<Desk>, text: String, number: u8) -> Result<Next<Desk>> {
    //~ put more into a tuple or a struct
        Ok(Next::finish(format!("{text}{number}")))
    }

    #[step]
    async fn nothing(_: &mut Run<Desk>) {}
    //~ a step is `async fn name(run: &mut Run<W>) -> Result<Next<W>>`

    #[step]
    async fn twice(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn twice(_: &mut Run<Desk>) -> Result<Next<Desk>> {
    //~ two steps are named `twice`
        Ok(Next::finish("x".into()))
    }
}

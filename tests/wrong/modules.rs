//! Modules that are no workflow.
use longhaul::{Next, Result, Run, Workflow, step, workflow};

#[workflow(version = 2)]
//~ takes no options
mod options {}

#[workflow]
//~ belongs on a module
pub struct Function;

#[workflow]
mod nothing {}
//~ there is no `impl Workflow for ..`
//~ put `#[step]` on an `async fn`

#[step]
//~ belongs inside a `#[workflow]` module
async fn outside(_: &mut Run<Desk>) -> Result<Next<Desk>> {
    Ok(Next::finish("x".into()))
}

pub struct Desk;

#[workflow]
mod stepless {
//~ put `#[step]` on an `async fn`
    use super::*;

    impl Workflow for Desk {
        const NAME: &'static str = "desk";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = ();
        //~ `()` is not a step of `Desk`
    }
}

pub struct First;
pub struct Second;

#[workflow]
mod both {
    use super::*;

    impl Workflow for First {
        const NAME: &'static str = "first";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    impl Workflow for Second {
    //~ this is the second `impl Workflow`
    //~ beside its steps
        const NAME: &'static str = "second";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
        //~ `open` is not a step of `Second`
    }

    #[step]
    async fn open(_: &mut Run<First>) -> Result<Next<First>> {
        Ok(Next::finish("x".into()))
    }
}

pub struct Alone;

impl Workflow for Alone {
//~ beside its steps
    const NAME: &'static str = "alone";
    const VERSION: u32 = 1;
    type Input = String;
    type State = ();
    type Output = String;
    type Entry = both::step::open;
    //~ `open` is not a step of `Alone`
}

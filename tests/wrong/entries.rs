//! Entries that a run cannot begin with.
use longhaul::{Next, Result, Run, Workflow, workflow};

pub struct Given;

#[workflow]
mod given {
    use super::*;

    impl Workflow for Given {
        const NAME: &'static str = "given";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
        //~ expected this to be `()`
    }

    #[step]
    async fn open(_: &mut Run<Given>, text: String) -> Result<Next<Given>> {
        Ok(Next::finish(text))
    }
}

pub struct Counts;

#[workflow]
mod counts {
    use super::*;

    impl Workflow for Counts {
        const NAME: &'static str = "counts";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
        //~ expected this to be `String`
    }

    #[step]
    async fn open(run: &mut Run<Counts>) -> Result<Next<Counts, usize>> {
        Ok(Next::finish(run.input.len()))
    }
}

pub struct Twice;

#[workflow]
mod twice {
    use super::*;

    impl Workflow for Twice {
        const NAME: &'static str = "twice";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
        type Entry = step::other;
        //~ duplicate definition
    }

    #[step]
    async fn open(_: &mut Run<Twice>) -> Result<Next<Twice>> {
        Ok(Next::finish("x".into()))
    }

    #[step]
    async fn other(_: &mut Run<Twice>) -> Result<Next<Twice>> {
        Ok(Next::finish("x".into()))
    }
}

pub struct Nameless;

#[workflow]
mod nameless {
    use super::*;

    impl Workflow for Nameless {
    //~ a name has 1 to 128 bytes
        const NAME: &'static str = "";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(_: &mut Run<Nameless>) -> Result<Next<Nameless>> {
        Ok(Next::finish("x".into()))
    }
}

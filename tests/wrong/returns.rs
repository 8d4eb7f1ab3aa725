//! What is no next.
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
        //~ should be `Result<Next<W>>`
    }

    #[step]
    async fn open(_: &mut Run<Desk>) -> Result<String> {
    //~ a step returns `longhaul::Result<Next<..>>`, not `std::result::Result<String
        Ok("x".into())
    }

    #[step]
    async fn bare(_: &mut Run<Desk>) -> Next<Desk> {
    //~ a step returns `longhaul::Result<Next<..>>`, not `longhaul::Next<Desk
        Next::finish("x".into())
    }

    #[step]
    async fn other_error(_: &mut Run<Desk>) -> std::result::Result<Next<Desk>, String> {
    //~ a step returns `longhaul::Result<Next<..>>`, not `std::result::Result<longhaul::Next<Desk, String>, String>
        Ok(Next::finish("x".into()))
    }
}

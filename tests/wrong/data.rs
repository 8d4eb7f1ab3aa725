//! What cannot be stored.
use longhaul::{Next, Result, Run, Workflow, workflow};

pub struct Opaque;

pub struct Desk;

#[workflow]
mod desk {
    use super::*;

    impl Workflow for Desk {
        const NAME: &'static str = "desk";
        const VERSION: u32 = 1;
        type Input = Opaque;
        //~ adding `#[derive(serde::Deserialize)]`
        //~ adding `#[derive(serde::Serialize)]`
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(run.sleep(std::time::Duration::ZERO).carry(Opaque).then(step::slept))
        //~ `serde_core::ser::Serialize` is not implemented for `Opaque`
    }

    #[step]
    async fn slept(_: &mut Run<Desk>, ((), _opaque): ((), Opaque)) -> Result<Next<Desk>> {
    //~ adding `#[derive(serde::Serialize)]`
        Ok(Next::finish("x".into()))
    }
}

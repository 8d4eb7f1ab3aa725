//! The answer of a person is not what the step takes.
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
        if run.input.is_empty() {
            return Ok(run.human::<bool>("Keep it?").then(step::named));
            //~ expected this to be `bool`
        }
        if run.input.len() == 1 {
            return Ok(run.human("How many?").or_after(std::time::Duration::from_secs(1), 7).then(step::named));
            //~ expected this to be `{integer}`
        }
        if run.input.len() == 2 {
            return Ok(run.human::<Opaque>("What?").then(step::named));
            //~ `schemars::JsonSchema` is not implemented for `Opaque`
            //~ `serde_core::ser::Serialize` is not implemented for `Opaque`
        }
        if run.input.len() == 3 {
            return Ok(run.human::<String>("Now?").live().then(step::named));
            //~ no method named `live` found
        }
        Ok(run.human::<bool>("Keep it?"))
        //~ expected `Next<Desk, String>`, found `Asking<Desk, bool>`
    }

    #[step]
    async fn named(_: &mut Run<Desk>, name: String) -> Result<Next<Desk>> {
        Ok(Next::finish(name))
    }
}

pub struct Opaque;

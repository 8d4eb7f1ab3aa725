//! The control: what the other files do wrong, done right.
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

    #[step(attempts = 3, backoff = "1s..1m", timeout = "30s", crash_limit = 3, blocking)]
    async fn open(run: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(run.call(step::count, "abc".into()).then(step::counted))
    }

    #[step]
    async fn count(_: &mut Run<Desk>, text: String) -> Result<Next<Desk, usize>> {
        Ok(Next::finish(text.len()))
    }

    #[step]
    async fn counted(run: &mut Run<Desk>, count: usize) -> Result<Next<Desk>> {
        if count == 0 {
            return Ok(run.human::<bool>("Keep it?").carry(7).then(step::judged));
        }
        Ok(run.fork().branch("a", step::word, ()).branch("b", step::count, "b".into()).join(step::joined))
    }

    #[step]
    async fn judged(_: &mut Run<Desk>, (keep, carried): (bool, i32)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{keep} {carried}")))
    }

    #[step]
    async fn word(_: &mut Run<Desk>) -> Result<Next<Desk, String>> {
        Ok(Next::finish("a".into()))
    }

    #[step]
    async fn joined(_: &mut Run<Desk>, (word, count): (String, usize)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{word} {count}")))
    }
}

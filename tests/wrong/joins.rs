//! What branches end with is not what the join takes.
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
            return Ok(run.fork().branch("word", step::word, ()).branch("sum", step::sum, 1).join(step::joined));
            //~ expected this to be `(String, i64)`
        }
        if run.input.len() == 1 {
            return Ok(run.fork_each(step::sum, &[1, 2]).collect(step::summed));
            //~ expected this to be `Vec<Branch<i64>>`
        }
        Ok(run.fork().branch("sum", step::sum, "1".to_owned()).branch("sum", step::sum, 1).join(step::paired))
        //~ expected `i64`, found `String`
    }

    #[step]
    async fn word(_: &mut Run<Desk>) -> Result<Next<Desk, String>> {
        Ok(Next::finish("a".into()))
    }

    #[step]
    async fn sum(_: &mut Run<Desk>, k: i64) -> Result<Next<Desk, i64>> {
        Ok(Next::finish(k))
    }

    #[step]
    async fn joined(_: &mut Run<Desk>, (sum, word): (i64, String)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{sum} {word}")))
    }

    #[step]
    async fn paired(_: &mut Run<Desk>, (a, b): (i64, i64)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{a} {b}")))
    }

    #[step]
    async fn summed(_: &mut Run<Desk>, sums: Vec<i64>) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{sums:?}")))
    }
}

//! Branches that ended under an older version than the run that merges their states is at.

use crate::support::{check, config, connect, database, eventually};
use longhaul::{Client, InFlight, Next, Node, Result, Run, Workflow, workflow};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct OldNotes {
    left: i64,
    right: i64,
}

/// What was one number each is a text now.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct NewNotes {
    left: String,
    right: String,
}

pub struct Old;

#[workflow]
mod old {
    use super::*;

    impl Workflow for Old {
        const NAME: &'static str = "pair";
        const VERSION: u32 = 1;
        type Input = ();
        type State = OldNotes;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Old>) -> Result<Next<Old>> {
        (run.state.left, run.state.right) = (1, 1);
        Ok(run.fork().branch("left", step::left, ()).branch("right", step::right, ()).merge().join(step::done))
    }
    #[step]
    async fn left(run: &mut Run<Old>) -> Result<Next<Old, ()>> {
        run.state.left = 2;
        Ok(Next::finish(()))
    }
    #[step]
    async fn right(run: &mut Run<Old>) -> Result<Next<Old, ()>> {
        Ok(run.external::<i64>("a number").then(step::told))
    }
    #[step]
    async fn told(run: &mut Run<Old>, n: i64) -> Result<Next<Old, ()>> {
        run.state.right = n;
        Ok(Next::finish(()))
    }
    #[step]
    async fn done(run: &mut Run<Old>, _: ((), ())) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{:?}", run.state)))
    }
}

pub struct New;

#[workflow]
mod new {
    use super::*;

    impl Workflow for New {
        const NAME: &'static str = "pair";
        const VERSION: u32 = 2;
        const UPGRADES_FROM: u32 = 1;
        type Input = ();
        type State = NewNotes;
        type Output = String;
        type Entry = step::open;

        fn upgrade(_: u32, mut moved: InFlight) -> Result<InFlight> {
            if let Some(state) = &mut moved.state {
                for side in ["left", "right"] {
                    state[side] = format!("was {}", state[side]).into();
                }
            }
            Ok(moved)
        }
    }

    #[step]
    async fn open(_: &mut Run<New>) -> Result<Next<New>> {
        Ok(Next::finish("not here".into()))
    }
    #[step]
    async fn told(run: &mut Run<New>, n: i64) -> Result<Next<New, ()>> {
        run.state.right = format!("is {n}");
        Ok(Next::finish(()))
    }
    #[step]
    async fn done(run: &mut Run<New>, _: ((), ())) -> Result<Next<New>> {
        Ok(Next::finish(format!("{} {}", run.state.left, run.state.right)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_an_older_branch_is_upgraded_before_it_is_merged() {
    let db = database().await;
    let node = Node::builder(db.url()).workflow(Old).config(config("old")).start().await.unwrap();
    let client = Client::connect(db.url()).await.unwrap();
    let run = client.enqueue::<Old>("r", ()).await.unwrap();
    eventually("one branch is over and the other waits", async || {
        let counts = client.counts().await.unwrap();
        ((counts.completed, counts.waiting) == (1, 2)).then_some(())
    })
    .await;
    node.shutdown().await.unwrap();

    let node = Node::builder(db.url()).workflow(New).config(config("new")).start().await.unwrap();
    let mut conn = connect(&db).await;
    let branch: String = sqlx::query_scalar("select run_id from longhaul.runs where parent is not null and status = 3")
        .fetch_one(&mut conn)
        .await
        .unwrap();
    client.answer(&branch, "ada", &7).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "was 2 is 7");
    check(&db).await;
    node.shutdown().await.unwrap();
}

//! Answers name the question that they are for, and may be repeated after a lost reply.

use crate::support::{config, database, until_over, until_status};
use longhaul::{Client, Next, Node, Result, Run, RunStatus, Workflow, workflow};

/// Asks twice.
pub struct Twice;

#[workflow]
mod twice {
    use super::*;

    impl Workflow for Twice {
        const NAME: &'static str = "twice";
        const VERSION: u32 = 1;
        type Input = ();
        type State = ();
        type Output = String;
        type Entry = step::first;
    }

    #[step]
    async fn first(run: &mut Run<Twice>) -> Result<Next<Twice>> {
        Ok(run.human::<String>("One?").then(step::second))
    }
    #[step]
    async fn second(run: &mut Run<Twice>, one: String) -> Result<Next<Twice>> {
        Ok(run.human::<String>("Two?").carry(one).then(step::both))
    }
    #[step]
    async fn both(_: &mut Run<Twice>, (two, one): (String, String)) -> Result<Next<Twice>> {
        Ok(Next::finish(format!("{one} {two}")))
    }
}

/// The number of the question that is open, once it is that one.
async fn question(client: &Client, prompt: &str) -> i32 {
    crate::support::eventually(prompt, async || {
        let question = client.question("r").await.ok()?;
        (question["prompt"] == prompt).then(|| question["question"].as_i64().unwrap() as i32)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_goes_to_the_question_that_it_names_or_nowhere() {
    let db = database().await;
    let node = Node::builder(db.url()).workflow(Twice).config(config("a")).start().await.unwrap();
    let client = node.client();
    client.enqueue::<Twice>("r", ()).await.unwrap();
    until_status(&client, "r", RunStatus::Waiting).await;
    let one = question(&client, "One?").await;
    let nowhere = client.answer_question("r", one + 1, "ann", "yes").await.unwrap_err();
    assert_eq!(nowhere.code(), "unknown-question");
    client.answer_question("r", one, "ann", "yes").await.unwrap();
    let two = question(&client, "Two?").await;
    assert_ne!(one, two);

    // Ann's reply was lost and she repeats it, while the run asks something else by now.
    client.answer_question("r", one, "ann", "yes").await.unwrap();
    assert_eq!(client.answer_question("r", one, "bob", "yes").await.unwrap_err().code(), "already-answered");
    assert_eq!(client.answer_question("r", one, "ann", "no").await.unwrap_err().code(), "already-answered");
    assert_eq!(question(&client, "Two?").await, two, "nobody has answered that");
    assert_eq!(client.answer_question("r", two, "", "x").await.unwrap_err().code(), "invalid-name");

    client.answer("r", "bob", "indeed").await.unwrap();
    until_over(&client).await;
    assert_eq!(client.output::<Twice>("r").await.unwrap().as_deref(), Some("yes indeed"));
    client.answer("r", "bob", "indeed").await.unwrap();
    client.answer_question("r", one, "ann", "yes").await.unwrap();
    assert_eq!(client.answer("r", "bob", "other").await.unwrap_err().code(), "run-terminal");
    node.shutdown().await.unwrap();
}

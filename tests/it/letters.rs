//! One workflow in two versions. In the second one most steps have another name, and the state has a field more, without
//! which it cannot be read.

use crate::flows::{Gate, Log, request};
use longhaul::{InFlight, Next, Reply, Result, Run, StepError, Workflow, workflow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const DAY: Duration = Duration::from_secs(86_400);

/// Version 1: one run, one kind of waiting; the input says which.
#[derive(Clone, Default)]
pub struct Old {
    pub log: Log,
    /// Whether `middle` fails, to be tried again after a day.
    pub failing: Arc<AtomicBool>,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct OldNotes {
    text: String,
}

#[workflow]
mod old {
    use super::*;

    impl Workflow for Old {
        const NAME: &'static str = "letters";
        const VERSION: u32 = 1;
        type Input = String;
        type State = OldNotes;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Old>) -> Result<Next<Old>> {
        run.state.text = format!("{}:", run.input);
        Ok(match run.input.as_str() {
            "model" => run.model("claude", request(run.id(), 1, "x")).carry(7).then(step::drafted),
            "sleep" => run.sleep(DAY).then(step::slept),
            "human" => run.human::<bool>("Well?").carry(3).then(step::judged),
            "fork" => run.fork_each(step::leaf, &[1, 2]).join(step::joined),
            "call" => run.call(step::inner, 1).carry(2).then(step::outer),
            _ => Next::goto(step::middle, 5),
        })
    }
    #[step(attempts = 2, backoff = "1d..1d")]
    async fn middle(run: &mut Run<Old>, n: i64) -> Result<Next<Old>> {
        if run.app.log.note(run.id(), "middle") == 1 && run.app.failing.load(Ordering::Relaxed) {
            return Err(StepError::new("not yet"));
        }
        Ok(Next::finish(format!("{}old {n}", run.state.text)))
    }
    #[step]
    async fn drafted(run: &mut Run<Old>, (reply, n): (Reply, i64)) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{}old {} {n}", run.state.text, reply.text())))
    }
    #[step]
    async fn slept(run: &mut Run<Old>) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{}old", run.state.text)))
    }
    #[step]
    async fn judged(run: &mut Run<Old>, (well, n): (bool, i64)) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{}old {well} {n}", run.state.text)))
    }
    #[step]
    async fn leaf(run: &mut Run<Old>, k: i64) -> Result<Next<Old, i64>> {
        Ok(run.sleep(DAY).carry(k).then(step::leaf_slept))
    }
    #[step]
    async fn leaf_slept(_: &mut Run<Old>, ((), k): ((), i64)) -> Result<Next<Old, i64>> {
        Ok(Next::finish(k))
    }
    #[step]
    async fn joined(run: &mut Run<Old>, all: Vec<i64>) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{}old {all:?}", run.state.text)))
    }
    #[step]
    async fn inner(run: &mut Run<Old>, n: i64) -> Result<Next<Old, i64>> {
        Ok(run.sleep(DAY).carry(n).then(step::inner_slept))
    }
    #[step]
    async fn inner_slept(_: &mut Run<Old>, ((), n): ((), i64)) -> Result<Next<Old, i64>> {
        Ok(Next::finish(n))
    }
    #[step]
    async fn outer(run: &mut Run<Old>, (result, n): (i64, i64)) -> Result<Next<Old>> {
        Ok(Next::finish(format!("{}old {result}+{n}", run.state.text)))
    }
}

/// What has another name in version 2.
pub const RENAMED: [(&str, &str); 7] = [
    ("middle", "centre"),
    ("drafted", "written"),
    ("slept", "awake"),
    ("leaf_slept", "leaf_awake"),
    ("joined", "gathered"),
    ("inner_slept", "inner_awake"),
    ("outer", "around"),
];

/// Version 2.
#[derive(Clone, Default)]
pub struct New {
    pub log: Log,
    /// What `centre` waits for, if it is asked to.
    pub gate: Gate,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub struct NewNotes {
    text: String,
    tries: u32,
}

/// Whether what cannot be taken over can be now.
pub static MENDED: AtomicBool = AtomicBool::new(false);

#[workflow]
mod new {
    use super::*;

    impl Workflow for New {
        const NAME: &'static str = "letters";
        const VERSION: u32 = 2;
        const UPGRADES_FROM: u32 = 1;
        type Input = String;
        type State = NewNotes;
        type Output = String;
        type Entry = step::open;

        fn upgrade(from: u32, mut moved: InFlight) -> Result<InFlight> {
            assert_eq!(from, 1);
            if !MENDED.load(Ordering::Relaxed) {
                match moved.run_id() {
                    "refused" => return Err(StepError::fatal("not this one")),
                    "panics" => panic!("by accident"),
                    "lost" => moved.step = "nowhere".into(),
                    "unreadable" => moved.state = Some(serde_json::json!({})),
                    _ => {}
                }
            }
            for (old, new) in RENAMED {
                moved.rename(old, new);
            }
            if let Some(state) = &mut moved.state {
                state["tries"] = 1.into();
            }
            Ok(moved)
        }
    }

    #[step]
    async fn open(run: &mut Run<New>) -> Result<Next<New>> {
        run.state.text = format!("{}:", run.input);
        Ok(Next::goto(step::centre, 6))
    }
    #[step(crash_limit = 50)]
    async fn centre(run: &mut Run<New>, n: i64) -> Result<Next<New>> {
        run.app.log.note(run.id(), "centre");
        if run.id() == "held" {
            run.app.gate.pass().await;
        }
        Ok(Next::finish(format!("{}new {n} {}", run.state.text, run.state.tries)))
    }
    #[step]
    async fn written(run: &mut Run<New>, (reply, n): (Reply, i64)) -> Result<Next<New>> {
        Ok(Next::finish(format!("{}new {} {n}", run.state.text, reply.text())))
    }
    #[step]
    async fn awake(run: &mut Run<New>) -> Result<Next<New>> {
        Ok(Next::finish(format!("{}new {}", run.state.text, run.state.tries)))
    }
    #[step]
    async fn judged(run: &mut Run<New>, (well, n): (bool, i64)) -> Result<Next<New>> {
        Ok(Next::finish(format!("{}new {well} {n}", run.state.text)))
    }
    #[step]
    async fn leaf(_: &mut Run<New>, k: i64) -> Result<Next<New, i64>> {
        Ok(Next::finish(k * 10))
    }
    #[step]
    async fn leaf_awake(_: &mut Run<New>, ((), k): ((), i64)) -> Result<Next<New, i64>> {
        Ok(Next::finish(k * 10))
    }
    #[step]
    async fn gathered(run: &mut Run<New>, all: Vec<i64>) -> Result<Next<New>> {
        Ok(Next::finish(format!("{}new {all:?}", run.state.text)))
    }
    #[step]
    async fn inner(_: &mut Run<New>, n: i64) -> Result<Next<New, i64>> {
        Ok(Next::finish(n * 10))
    }
    #[step]
    async fn inner_awake(_: &mut Run<New>, ((), n): ((), i64)) -> Result<Next<New, i64>> {
        Ok(Next::finish(n * 10))
    }
    #[step]
    async fn around(run: &mut Run<New>, (result, n): (i64, i64)) -> Result<Next<New>> {
        Ok(Next::finish(format!("{}new {result}+{n}", run.state.text)))
    }
}

//! Generated programs, with everything that a step can ask for: whole, cut into pieces, in any order, set going again, and on two
//! nodes with a database, they come to the same end by the same way.

mod nodes;
mod plan;
mod trace;

use futures::FutureExt;
use futures::executor::block_on;
use longhaul::{Action, Answer, Ask, Snapshot, Stepper, WaitKind};
use plan::{Double, Plan, World, answers, flow, plans, says};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::json;
use std::sync::Arc;
use trace::{End, Told, Trace, ledgers};

/// What is done between two actions of a program.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Which of the actions is done; the first, if it is one.
    choice: prop::sample::Index,
    /// The run is stored and goes on elsewhere.
    cut: bool,
    /// Its process dies in the step, which is started again.
    dies: bool,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (any::<prop::sample::Index>(), any::<bool>(), prop::bool::weighted(0.2))
        .prop_map(|(choice, cut, dies)| Turn { choice, cut, dies });
    prop::collection::vec(turn, 1..60)
}

/// One play of a program.
struct Play<'p> {
    plan: &'p Plan,
    world: Arc<World>,
    stepper: Stepper,
    told: Vec<Told>,
}

impl<'p> Play<'p> {
    fn new(plan: &'p Plan, world: Arc<World>) -> Self {
        let flow = Arc::new(flow("program", plan, &world));
        let stepper = Stepper::begin(flow, "program", &json!(1)).unwrap().tool(Double);
        Self { plan, world, stepper, told: Vec::new() }
    }

    /// Plays to the end, doing what `turn` says the n-th time.
    fn end(&mut self, turn: impl Fn(usize) -> Option<Turn>) -> End {
        for n in 0.. {
            let turn = turn(n);
            let mut actions: Vec<_> = self.stepper.actions().into_iter().map(Do::Act).collect();
            actions.extend(self.stepper.questions().into_iter().map(Do::Answer));
            if actions.is_empty() {
                break;
            }
            let choice = turn.map_or(0, |turn| turn.choice.index(actions.len()));
            match actions.swap_remove(choice) {
                Do::Answer(ask) => self.answer(&ask),
                Do::Act(Action::RunStep { run, .. }) => {
                    // A step of the engine's own does not give way, and is over at once.
                    let dies = turn.is_some_and(|turn| turn.dies);
                    if !dies || self.stepper.perform(run).now_or_never().is_none() {
                        block_on(self.stepper.perform(run)).unwrap();
                    }
                }
                Do::Act(Action::Join { run }) => block_on(self.stepper.perform(run)).unwrap(),
                Do::Act(other) => panic!("{other:?}"),
            }
            if turn.is_some_and(|turn| turn.cut) {
                self.cut();
            }
        }
        self.take();
        match self.stepper.next_action() {
            Action::Finished(output) => End::Finished(output.read().unwrap()),
            Action::Failed(failure) => End::Failed(failure.code),
            Action::Canceled => End::Canceled,
            other => panic!("{other:?}"),
        }
    }

    fn trace(mut self, turn: impl Fn(usize) -> Option<Turn>) -> Trace {
        let end = self.end(turn);
        Trace { end, ledgers: ledgers(self.told) }
    }

    /// Another process: another flow, and of the run what was stored. Events that were not taken are stored with it.
    fn cut(&mut self) {
        let stored = serde_json::to_string(&self.stepper.snapshot()).unwrap();
        let snapshot: Snapshot = serde_json::from_str(&stored).unwrap();
        assert_eq!(snapshot, self.stepper.snapshot());
        let flow = Arc::new(flow("program", self.plan, &self.world));
        self.stepper = Stepper::resume(flow, snapshot).unwrap().tool(Double);
        self.take();
    }

    fn take(&mut self) {
        let events = self.stepper.take_events().into_iter();
        self.told.extend(events.map(|e| Told { id: e.id, kind: e.kind, payload: e.payload.read().unwrap() }));
    }

    fn answer(&mut self, ask: &Ask) {
        let (wait, request) = (ask.wait(), ask.request());
        match ask.kind() {
            WaitKind::Timer => self.stepper.expire(wait).unwrap(),
            WaitKind::Human if ask.due().is_some() => self.stepper.expire(wait).unwrap(),
            WaitKind::Model => {
                let answer = match says(&request, &self.world) {
                    Some(content) => Answer::from(json!({"content": content})),
                    None => Answer::refused("not today"),
                };
                self.stepper.answer(wait, answer).unwrap();
            }
            _ => match answers(&request) {
                Some(answer) => self.stepper.answer(wait, answer).unwrap(),
                None => assert!(self.stepper.cancel(wait.run)),
            },
        }
    }
}

enum Do {
    Act(Action),
    Answer(Ask),
}

fn whole(plan: &Plan, world: Arc<World>) -> Trace {
    Play::new(plan, world).trace(|_| None)
}

fn config(cases: u32) -> ProptestConfig {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/programs.regressions");
    let failure_persistence = Some(Box::new(FileFailurePersistence::Direct(file)) as Box<_>);
    ProptestConfig { failure_persistence, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn cuts_deaths_and_the_order_of_branches_change_nothing(plan in plans(), turns in turns()) {
        for mended in [false, true] {
            let world = || if mended { World::mended() } else { Arc::default() };
            let cut = Play::new(&plan, world()).trace(|n| turns.get(n).copied());
            prop_assert_eq!(whole(&plan, world()), cut);
        }
    }

    #[test]
    fn what_failed_and_is_mended_ends_as_if_it_had_never_failed(plan in plans(), turns in turns()) {
        let world: Arc<World> = Arc::default();
        let mut play = Play::new(&plan, world.clone());
        let first = play.end(|n| turns.get(n).copied());
        world.mend();
        if let End::Failed(_) = first {
            play.stepper.retry(play.stepper.root()).unwrap();
            let again = play.end(|n| turns.get(n).copied());
            prop_assert_eq!(whole(&plan, World::mended()).end, again);
            ledgers(play.told);
        } else {
            prop_assert_eq!(whole(&plan, World::mended()).end, first);
            prop_assert!(play.stepper.retry(play.stepper.root()).is_err());
        }
    }
}

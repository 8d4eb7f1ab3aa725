//! Enqueueing: idempotent by run id and a digest of workflow name and input.

use super::Client;
use super::handle::RunHandle;
use crate::domain::canonical::digest;
use crate::domain::limits::INPUT_BYTES;
use crate::domain::{JsonText, RunId, RunKey, RunStatus};
use crate::error::Error;
use crate::run::{Dynamic, Manifest, Step, Workflow};
use crate::store::{Hint, Made, NewRun, Registrar};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::PoisonError;

/// Runs per statement.
const CHUNK: usize = 2_000;
/// Bytes of inputs per statement, about.
const CHUNK_BYTES: usize = 16 << 20;

/// What became of one run that was to be enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// It is new.
    Created,
    /// The same run was enqueued before; this is what it is doing now.
    Existing(RunStatus),
}

impl Client {
    /// Enqueues one run. The same id with the same input again is the same run, also after it has moved on or ended.
    ///
    /// # Errors
    /// [`Error::DuplicateRun`] when another input or workflow stands under that id; [`Error::RunId`], [`Error::Value`] or
    /// [`Error::Canonical`] when id or input cannot be kept. Nothing was written then.
    pub async fn enqueue<W: Workflow>(
        &self,
        run_id: impl Into<String>,
        input: W::Input,
    ) -> Result<RunHandle<W>, Error> {
        let run_id = run_id.into();
        let mut answers = self.enqueue_many::<W>(vec![(run_id.clone(), input)]).await?;
        let (key, _) = answers.pop().unwrap_or(Err(Error::UnknownRun(run_id.clone())))?;
        Ok(RunHandle::new(self.clone(), key, RunId::new(run_id)?))
    }

    /// Enqueues one run of a workflow that is known by its manifest: of a [`DynamicWorkflow`](crate::DynamicWorkflow), or of any
    /// [`Flow`](crate::run::flow::Flow). As [`enqueue`](Self::enqueue) otherwise; the output is JSON.
    ///
    /// ```no_run
    /// # async fn f(client: longhaul::Client, flow: longhaul::DynamicWorkflow) -> Result<(), longhaul::Error> {
    /// use longhaul::run::flow::Flow;
    ///
    /// let run = client.enqueue_dynamic(flow.manifest(), "1790", &serde_json::json!({"year": 1790})).await?;
    /// println!("{}", run.output().await?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue), and [`Error::Store`] when this version of the workflow is registered with other steps.
    pub async fn enqueue_dynamic<T: Serialize + ?Sized>(
        &self,
        manifest: &Manifest,
        run_id: impl Into<String>,
        input: &T,
    ) -> Result<RunHandle<Dynamic>, Error> {
        let workflow = self.store().register_workflow(manifest, Registrar::Client).await?.key;
        let run = new_run(workflow, &manifest.workflow, manifest.entry.clone(), run_id.into(), input)?;
        let run_id = RunId::new(run.run_id.clone())?;
        let mut answers = vec![Err(Error::UnknownRun(run.run_id.clone()))];
        if self.write(&[run], &[0], &mut answers).await? {
            let _ = self.store().nudge(Hint::Runs).await;
        }
        let (key, _) = answers.pop().unwrap_or_else(|| Err(Error::UnknownRun(run_id.to_string())))?;
        Ok(RunHandle::new(self.clone(), key, run_id))
    }

    /// Enqueues many runs, set-based, and answers each in order; a bad one stops nobody.
    ///
    /// # Errors
    /// [`Error::Store`] when the database fails; runs of earlier chunks are in then, and enqueueing the same again is
    /// harmless.
    pub async fn enqueue_many<W: Workflow>(
        &self,
        runs: Vec<(String, W::Input)>,
    ) -> Result<Vec<Result<(RunKey, Enqueued), Error>>, Error> {
        let workflow = self.workflow::<W>().await?;
        let mut answers: Vec<Result<(RunKey, Enqueued), Error>> = Vec::with_capacity(runs.len());
        let (mut chunk, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut made_any = false;
        let total = runs.len();
        for (place, (run_id, input)) in runs.into_iter().enumerate() {
            match checked::<W>(workflow, run_id, &input) {
                Ok(run) => {
                    bytes += run.input.as_str().len();
                    answers.push(Err(Error::UnknownRun(run.run_id.clone())));
                    chunk.push(run);
                    places.push(place);
                }
                Err(error) => answers.push(Err(error)),
            }
            let full = chunk.len() >= CHUNK || bytes >= CHUNK_BYTES;
            if !chunk.is_empty() && (full || place + 1 == total) {
                made_any |= self.write(&chunk, &places, &mut answers).await?;
                (chunk, places, bytes) = (Vec::new(), Vec::new(), 0);
            }
        }
        if made_any {
            // Only a hint: the nodes look by themselves as well.
            let _ = self.store().nudge(Hint::Runs).await;
        }
        Ok(answers)
    }

    /// The key of the workflow's version; asked of the database once.
    async fn workflow<W: Workflow>(&self) -> Result<i32, Error> {
        let name = (W::NAME, W::VERSION);
        if let Some(key) = self.workflows.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(*key);
        }
        let key = self.store().register_workflow(&Manifest::of::<W>(), Registrar::Client).await?.key;
        self.workflows.lock().unwrap_or_else(PoisonError::into_inner).insert(name, key);
        Ok(key)
    }

    async fn write(
        &self,
        chunk: &[NewRun],
        places: &[usize],
        answers: &mut [Result<(RunKey, Enqueued), Error>],
    ) -> Result<bool, Error> {
        let mut any = false;
        for (k, made) in self.insert(chunk).await?.into_iter().enumerate() {
            answers[places[k]] = match made {
                Made::Created(key) => {
                    any = true;
                    Ok((key, Enqueued::Created))
                }
                Made::Existing(key, status) => Ok((key, Enqueued::Existing(status))),
                Made::Duplicate => Err(Error::DuplicateRun(chunk[k].run_id.clone())),
            };
        }
        Ok(any)
    }

    /// An unknown COMMIT of an enqueue is settled by repeating it under its unique key; so is a transient error.
    async fn insert(&self, chunk: &[NewRun]) -> Result<Vec<Made>, Error> {
        let mut tries = 0;
        loop {
            match self.store().enqueue(chunk).await {
                Ok(made) => return Ok(made),
                Err(error) if (error.is_transient() || error.is_connection()) && tries < 5 => {
                    tries += 1;
                    tokio::time::sleep(std::time::Duration::from_millis(20 << tries)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn checked<W: Workflow>(workflow: i32, run_id: String, input: &W::Input) -> Result<NewRun, Error> {
    new_run(workflow, W::NAME, W::Entry::NAME.into(), run_id, input)
}

fn new_run<T: Serialize + ?Sized>(
    workflow: i32,
    name: &str,
    entry: Cow<'static, str>,
    run_id: String,
    input: &T,
) -> Result<NewRun, Error> {
    let run_id = RunId::new(run_id)?;
    let input = JsonText::of(input, "the input", INPUT_BYTES)?;
    let digest = digest(name, &input)?;
    Ok(NewRun { run_id: run_id.as_str().to_owned(), workflow, entry, input, digest })
}

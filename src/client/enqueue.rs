//! Enqueueing: idempotent by run id and a digest of workflow name and input. One run, many, or one inside a transaction of the
//! caller's; from programs without this crate, by the SQL function `longhaul.enqueue`.

use super::Client;
use super::handle::RunHandle;
use super::options::EnqueueOptions;
use crate::domain::canonical::digest;
use crate::domain::limits::INPUT_BYTES;
use crate::domain::{JsonText, RunId, RunKey, RunStatus};
use crate::error::Error;
use crate::run::{Dynamic, Manifest, Step, Workflow};
use crate::store::{Hint, Made, NewRun, PgConnection, Registrar};
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
        self.enqueue_with(run_id, input, EnqueueOptions::new()).await
    }

    /// Enqueues one run with tags and metadata.
    ///
    /// # Errors
    /// As [`Client::enqueue`], and [`Error::Options`].
    pub async fn enqueue_with<W: Workflow>(
        &self,
        run_id: impl Into<String>,
        input: W::Input,
        options: EnqueueOptions,
    ) -> Result<RunHandle<W>, Error> {
        let run_id = run_id.into();
        let mut answers = self.enqueue_many_with::<W>(vec![(run_id.clone(), input, options)]).await?;
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
        let run = new_run(
            workflow,
            &manifest.workflow,
            manifest.entry.clone(),
            run_id.into(),
            input,
            EnqueueOptions::default(),
        )?;
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
        let plain = |(run_id, input)| (run_id, input, EnqueueOptions::new());
        self.enqueue_many_with::<W>(runs.into_iter().map(plain).collect()).await
    }

    /// Enqueues many runs, each with tags and metadata of its own.
    ///
    /// # Errors
    /// As [`Client::enqueue_many`].
    pub async fn enqueue_many_with<W: Workflow>(
        &self,
        runs: Vec<(String, W::Input, EnqueueOptions)>,
    ) -> Result<Vec<Result<(RunKey, Enqueued), Error>>, Error> {
        let workflow = self.workflow::<W>().await?;
        let mut answers: Vec<Result<(RunKey, Enqueued), Error>> = Vec::with_capacity(runs.len());
        let (mut chunk, mut places, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut made_any = false;
        let total = runs.len();
        for (place, (run_id, input, options)) in runs.into_iter().enumerate() {
            match checked::<W>(workflow, run_id, &input, options) {
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

    /// Enqueues one run inside a transaction of the caller's: it is made if and when that commits, together with what else the
    /// transaction writes. Nobody is notified: nodes find the run at their next look, or at once when the caller calls
    /// [`Client::nudge`] after the COMMIT. No handle is answered, since there is no run yet.
    ///
    /// ```no_run
    /// # use longhaul::{Client, EnqueueOptions, Workflow};
    /// # use sqlx::Connection;
    /// # async fn f<W: Workflow<Input = String>>(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut conn = sqlx::PgConnection::connect("postgres://localhost/app").await?;
    /// let mut tx = conn.begin().await?;
    /// sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    /// client.enqueue_in::<W>(&mut tx, "order-7", "..".into(), EnqueueOptions::new()).await?;
    /// tx.commit().await?;
    /// client.nudge().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::enqueue_with`]. After [`Error::Store`] the transaction is of no use any more; after any other error
    /// nothing was written and it can go on. An error that asks to try again means the transaction: begin a new one.
    pub async fn enqueue_in<W: Workflow>(
        &self,
        transaction: &mut PgConnection,
        run_id: impl Into<String>,
        input: W::Input,
        options: EnqueueOptions,
    ) -> Result<Enqueued, Error> {
        let run = checked::<W>(self.workflow::<W>().await?, run_id.into(), &input, options)?;
        match self.store().enqueue_in(transaction, &run).await? {
            Made::Created(_) => Ok(Enqueued::Created),
            Made::Existing(_, status) => Ok(Enqueued::Existing(status)),
            Made::Duplicate => Err(Error::DuplicateRun(run.run_id)),
        }
    }

    /// Tells the nodes to look for runs now. Only a hint that saves them the wait until their next look.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn nudge(&self) -> Result<(), Error> {
        Ok(self.store().nudge(Hint::Runs).await?)
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

fn checked<W: Workflow>(
    workflow: i32,
    run_id: String,
    input: &W::Input,
    options: EnqueueOptions,
) -> Result<NewRun, Error> {
    new_run(workflow, W::NAME, W::Entry::NAME.into(), run_id, input, options)
}

fn new_run<T: Serialize + ?Sized>(
    workflow: i32,
    name: &str,
    entry: Cow<'static, str>,
    run_id: String,
    input: &T,
    options: EnqueueOptions,
) -> Result<NewRun, Error> {
    let run_id = RunId::new(run_id)?;
    let input = JsonText::of(input, "the input", INPUT_BYTES)?;
    let digest = digest(name, &input)?;
    let (tags, metadata) = options.check()?;
    Ok(NewRun { run_id: run_id.as_str().to_owned(), workflow, entry, input, digest, tags, metadata })
}

//! Which questions wait for people.

use super::Client;
use crate::domain::JsonText;
use crate::error::Error;
use chrono::{DateTime, Utc};
use serde_json::Value;

/// An open question to a person.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Question {
    /// The run that asks: what [`Client::answer`] takes.
    pub run: String,
    /// Since when, by the database's clock.
    pub asked_at: DateTime<Utc>,
    /// When the answer that was agreed on will be taken instead; `None`: it waits for ever.
    pub until: Option<DateTime<Utc>>,
    /// What is asked: an object with `prompt`, and `context`, `metadata` and the `schema` of the answer where there are any.
    pub asked: Value,
}

impl Client {
    /// The open questions to people, the oldest first, branches' among them: what a page for reviewers shows.
    ///
    /// ```no_run
    /// # async fn f(client: longhaul::Client) -> Result<(), longhaul::Error> {
    /// for question in client.questions(50).await? {
    ///     println!("{}: {}", question.run, question.asked["prompt"]);
    ///     client.answer(&question.run, "ada@example.com", "yes").await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn questions(&self, limit: u32) -> Result<Vec<Question>, Error> {
        let asked = self.store().open_questions(i64::from(limit)).await?;
        let questions = asked.into_iter().map(|asked| Question {
            // What is stored was checked; what no `Value` can hold is shown as `null` and can be answered all the same.
            asked: JsonText::stored(asked.body).read().unwrap_or_default(),
            run: asked.run_id,
            asked_at: asked.asked_at,
            until: asked.until,
        });
        Ok(questions.collect())
    }
}

//! What can go wrong with the database, told apart once.

use crate::domain::failure::cut;

/// A database error, by what may be done about it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The server asked for the statement to be repeated (serialization, deadlock, lock timeout, too many connections).
    #[error("the database asked to try again ({code}): {message}")]
    Transient {
        /// SQLSTATE.
        code: String,
        /// The server's words.
        message: String,
    },
    /// The connection is gone or of no use; what was under way may or may not have been committed.
    #[error("no usable connection to the database: {0}")]
    Connection(String),
    /// The server refuses the values or the statement; repeating changes nothing.
    #[error("the database refuses this ({code}): {message}")]
    Refused {
        /// SQLSTATE.
        code: String,
        /// The server's words.
        message: String,
    },
    /// A row does not read back as it was written.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
    /// The tables are not of a version that this build knows.
    #[error("the schema is at migration {found}, this build needs {needed}: {advice}")]
    Schema {
        /// What is there; 0 is nothing.
        found: i64,
        /// What is needed.
        needed: i64,
        /// What to do.
        advice: &'static str,
    },
    /// The same version of a workflow was registered with other steps.
    #[error(
        "workflow `{name}` version {version} is registered with other steps{}: give the changed one a new VERSION",
        other_steps(missing, added)
    )]
    WorkflowDrift {
        /// The workflow.
        name: String,
        /// Its version.
        version: u32,
        /// Steps that are registered and not here.
        missing: Vec<String>,
        /// Steps that are here and not registered.
        added: Vec<String>,
    },
}

/// Which steps are not the same, for the message.
fn other_steps(missing: &[String], added: &[String]) -> String {
    let list = |what: &str, steps: &[String]| match steps {
        [] => String::new(),
        steps => format!(" ({what}: {})", steps.join(", ")),
    };
    list("missing here", missing) + &list("new here", added)
}

impl StoreError {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Transient { .. } => "store-transient",
            Self::Connection(_) => "store-connection",
            Self::Refused { .. } => "store-refused",
            Self::Corrupt(_) => "store-corrupt",
            Self::Schema { .. } => "schema-mismatch",
            Self::WorkflowDrift { .. } => "workflow-drift",
        }
    }

    /// Whether the statement may be repeated as it is on the same connection.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }

    /// Whether the connection has to be thrown away.
    pub(crate) fn is_connection(&self) -> bool {
        matches!(self, Self::Connection(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(db) => {
                let code = db.code().map(|c| c.into_owned()).unwrap_or_default();
                let message = cut(db.message());
                match code.get(..2) {
                    // Shutdown, crash, read-only (a demoted primary), a transaction in an unexpected state.
                    _ if matches!(&*code, "57P01" | "57P02" | "57P03" | "25006" | "25P01" | "25P02" | "25P03") => {
                        Self::Connection(format!("{code}: {message}"))
                    }
                    Some("08") => Self::Connection(format!("{code}: {message}")),
                    Some("40" | "53" | "55" | "57") => Self::Transient { code, message },
                    _ => Self::Refused { code, message },
                }
            }
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => {
                Self::Corrupt(cut(&error.to_string()))
            }
            other => Self::Connection(cut(&other.to_string())),
        }
    }
}

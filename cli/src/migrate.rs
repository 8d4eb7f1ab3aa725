//! `longhaul migrate`.

use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out;
use serde_json::json;

pub(crate) async fn run(args: &DatabaseArgs, as_json: bool) -> Result<Exit, CliError> {
    longhaul::migrate(&args.database).await?;
    if as_json {
        out::json(&json!({"migrated": true}))?;
    } else {
        out::text("the schema `longhaul` is that of this build\n")?;
    }
    Ok(Exit::Well)
}

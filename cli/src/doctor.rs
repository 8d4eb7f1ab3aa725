//! `longhaul doctor`: is this server fit for nodes?

use crate::args::DatabaseArgs;
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::client::Level;

pub(crate) async fn run(args: &DatabaseArgs, as_json: bool) -> Result<Exit, CliError> {
    let diagnosis = longhaul::doctor(&args.database).await?;
    if as_json {
        out::json(&diagnosis)?
    } else {
        out::text(&diagnosis.to_string())?
    }
    Ok(if diagnosis.level() == Level::Bad { Exit::Finding } else { Exit::Well })
}

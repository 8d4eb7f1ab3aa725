//! `longhaul check`: whether the runs in flight could go on with the versions that manifest files describe.

use crate::args::CheckArgs;
use crate::error::{CliError, Exit};
use crate::out;
use longhaul::{Check, Client, Manifest};
use std::path::Path;

pub(crate) async fn run(args: &CheckArgs, as_json: bool) -> Result<Exit, CliError> {
    let mut check = Check::new();
    for file in &args.manifest {
        check = check.manifest(read(file)?);
    }
    if args.others_elsewhere {
        check = check.others_elsewhere();
    }
    let report = check.run(&Client::connect(&args.database.database).await?).await?;
    if as_json {
        out::json(&report)?;
    } else {
        out::text(&report.to_string())?;
    }
    Ok(if report.ok() { Exit::Well } else { Exit::Finding })
}

fn read(file: &Path) -> Result<Manifest, CliError> {
    let refused = |why: String| CliError::File { file: file.to_owned(), why };
    let text = std::fs::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    Manifest::from_json(&text).map_err(|error| refused(format!("this is no manifest: {error}")))
}

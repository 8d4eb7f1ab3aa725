//! What makes a batch `failed` after its create was answered: the file's lines, and the limit of enqueued tokens.

use std::collections::HashSet;
use std::sync::Arc;

use axum::body::Bytes;
use chrono::Utc;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::app::{App, locked};
use super::super::batch::{Batch, Done, Item, Kind, Stage};
use super::super::create::contains;
use super::super::faults::Fault;
use super::super::processor::tokens;
use super::Endpoint;
use super::details::LineError;

/// Errors that are listed, at most.
const LISTED_ERRORS: usize = 50;

#[derive(Deserialize)]
struct Line<'a> {
    custom_id: Option<String>,
    method: Option<String>,
    url: Option<String>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Model {
    model: Option<String>,
}

/// What a good file holds.
#[derive(Default)]
struct Input {
    items: Vec<Item>,
    model: Option<String>,
    tokens: u64,
}

/// Validates a batch, which becomes `in_progress`; `None` when it has become `failed` or is gone.
pub(crate) async fn validate(app: &Arc<App>, id: &str) -> Option<()> {
    let (bytes, endpoint) = match locked(&app.shelf).get(id)?.kind {
        Kind::OpenAi(ref details) => (details.input.clone(), details.endpoint),
        Kind::Anthropic(_) => return None,
    };
    let max_requests = app.config.max_requests;
    let read = tokio::task::spawn_blocking(move || read(&bytes, endpoint, max_requests)).await.ok()?;
    let mut shelf = locked(&app.shelf);
    let enqueued: u64 = match &read {
        Ok(input) => shelf.iter().filter_map(|batch| waiting(batch, input.model.as_deref())).sum(),
        Err(_) => 0,
    };
    let batch = shelf.get_mut(id)?;
    let scripted = batch.plan.faults.take(|fault| match fault {
        Fault::FailValidation { code, message } => Some(error(code, message.clone(), None)),
        _ => None,
    });
    let guilty = match &read {
        Ok(input) => batch.plan.faults.take(|fault| guilty(fault, input)),
        Err(_) => None,
    };
    let scripted = scripted.map(|error| vec![error]).or(guilty);
    let over = |input: &Input| app.config.enqueued_tokens.filter(|limit| enqueued + input.tokens > *limit);
    let checked = match (scripted, read) {
        (Some(scripted), _) => Err(scripted),
        (None, Ok(input)) => match over(&input) {
            Some(limit) => Err(vec![queue_full(&app.config.organization, input.model.as_deref(), limit)]),
            None => Ok(input),
        },
        (None, Err(errors)) => Err(errors),
    };
    let Kind::OpenAi(details) = &mut batch.kind else { return None };
    match checked {
        Ok(input) => {
            details.in_progress_at = Some(Utc::now());
            (details.model, details.tokens) = (input.model, input.tokens);
            batch.total = input.items.len();
            batch.stage = Stage::Waiting(input.items);
            Some(())
        }
        Err(errors) => {
            details.errors = errors;
            batch.end(Done::default());
            None
        }
    }
}

/// The errors that some requests bring upon all of them, with their lines if the message is to name them.
fn guilty(fault: &Fault, input: &Input) -> Option<Vec<LineError>> {
    let Fault::GuiltyItem { containing, message } = fault else { return None };
    let guilty = input.items.iter().zip(0_usize..).filter(|(item, _)| contains(&item.params, containing.as_bytes()));
    let line = |n: usize| message.contains("{n}").then_some(n + 1);
    let errors = guilty.map(|(_, n)| error("invalid_request", message.replace("{n}", &n.to_string()), line(n)));
    let errors: Vec<_> = errors.take(LISTED_ERRORS).collect();
    (!errors.is_empty()).then_some(errors)
}

/// The tokens of a batch that count as enqueued for a model.
fn waiting(batch: &Batch, model: Option<&str>) -> Option<u64> {
    match &batch.kind {
        Kind::OpenAi(details) if !batch.ended() && details.model.as_deref() == model => Some(details.tokens),
        Kind::OpenAi(_) | Kind::Anthropic(_) => None,
    }
}

fn queue_full(organization: &str, model: Option<&str>, limit: u64) -> LineError {
    let model = model.unwrap_or_default();
    let message = format!(
        "Enqueued token limit reached for {model} in organization {organization}. Limit: {limit} enqueued tokens. Please try \
         again once some in_progress batches have been completed."
    );
    error("token_limit_exceeded", message, None)
}

fn error(code: &str, message: impl Into<String>, line: Option<usize>) -> LineError {
    LineError { code: code.to_owned(), message: message.into(), param: None, line }
}

fn read(bytes: &Bytes, endpoint: Endpoint, max_requests: usize) -> Result<Input, Vec<LineError>> {
    let mut input = Input::default();
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    let lines = bytes.split(|b| *b == b'\n').zip(1..).filter(|(line, _)| !line.trim_ascii().is_empty());
    for (line, number) in lines {
        match item(bytes, line, endpoint, &mut seen, &mut input.model) {
            Ok(item) => {
                input.tokens += tokens(item.params.len());
                input.items.push(item);
            }
            Err((code, message)) => errors.push(error(code, message, Some(number))),
        }
        if errors.len() >= LISTED_ERRORS {
            break;
        }
    }
    if input.items.is_empty() && errors.is_empty() {
        errors.push(error("empty_file", "The input file has no requests.", None));
    }
    if input.items.len() > max_requests {
        let message = format!("The input file has more than {max_requests} requests.");
        errors.push(error("too_many_requests", message, None));
    }
    if errors.is_empty() { Ok(input) } else { Err(errors) }
}

fn item(
    bytes: &Bytes,
    line: &[u8],
    endpoint: Endpoint,
    seen: &mut HashSet<String>,
    model: &mut Option<String>,
) -> Result<Item, (&'static str, String)> {
    let line: Line<'_> = serde_json::from_slice(line)
        .map_err(|_| ("invalid_json_line", "This line is not parseable as valid JSON.".to_owned()))?;
    let missing = |name: &str| ("missing_required_parameter", format!("Missing required parameter: '{name}'."));
    let custom_id = line.custom_id.filter(|id| !id.is_empty()).ok_or_else(|| missing("custom_id"))?;
    let url = line.url.ok_or_else(|| missing("url"))?;
    let body = line.body.ok_or_else(|| missing("body"))?;
    if line.method.as_deref() != Some("POST") {
        return Err(("invalid_method", "The method must be 'POST'.".to_owned()));
    }
    if url != endpoint.path() {
        let message = format!("The URL '{url}' is not the endpoint of the batch, '{}'.", endpoint.path());
        return Err(("invalid_url", message));
    }
    if !seen.insert(custom_id.clone()) {
        return Err(("duplicate_custom_id", format!("The custom_id '{custom_id}' is used more than once.")));
    }
    // A body that is no object, or has no model, is that request's own matter.
    let own = serde_json::from_str::<Model>(body.get()).ok().and_then(|body| body.model);
    match (&model, own) {
        (Some(first), Some(own)) if *first != own => {
            return Err((
                "mismatched_model",
                format!("The model '{own}' is not '{first}', that of the first request."),
            ));
        }
        (None, Some(own)) => *model = Some(own),
        (_, _) => {}
    }
    Ok(Item { custom_id, params: bytes.slice_ref(body.get().as_bytes()) })
}

//! Tools that models use: they run on the node, inside a durable loop.

use super::reply::ToolUse;
use crate::domain::JsonText;
use futures::future::BoxFuture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One use of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// `run id : tool_use id`. The same when the use is repeated after a crash: what a tool does to the world outside should
    /// be keyed by it, for a use is at-least-once.
    pub id: String,
    /// The input that the model wrote, a JSON object.
    pub input: JsonText,
}

/// What a tool answers: the text that the model reads, or an error that it reads as one.
pub type ToolResult = Result<String, String>;

/// A tool. Register it with the node, or with a rehearsal.
///
/// ```
/// use longhaul::{Tool, ToolCall, ToolResult};
///
/// struct WordCount;
///
/// impl Tool for WordCount {
///     const NAME: &'static str = "word_count";
///     async fn call(&self, call: ToolCall) -> ToolResult {
///         let input: serde_json::Value = call.input.read().map_err(|e| e.to_string())?;
///         let text = input["text"].as_str().ok_or("`text` is missing")?;
///         Ok(text.split_whitespace().count().to_string())
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The name that the model uses.
    const NAME: &'static str;

    /// Does it. An error is told to the model, not to the run; a panic is told as one.
    fn call(&self, call: ToolCall) -> impl Future<Output = ToolResult> + Send;
}

trait AnyTool: Send + Sync {
    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolResult>;
}

impl<T: Tool> AnyTool for T {
    fn call(&self, call: ToolCall) -> BoxFuture<'_, ToolResult> {
        Box::pin(Tool::call(self, call))
    }
}

/// Tools by name.
#[derive(Clone, Default)]
pub(crate) struct Toolbox(BTreeMap<&'static str, Arc<dyn AnyTool>>);

/// A result as the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct ToolResultBlock {
    /// Always `tool_result`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The use that it answers.
    pub tool_use_id: String,
    /// The text.
    pub content: String,
    /// Whether it is an error.
    #[serde(default)]
    pub is_error: bool,
}

impl Toolbox {
    /// Adds a tool; `false` when one of that name is there.
    pub(crate) fn add<T: Tool>(&mut self, tool: T) -> bool {
        self.0.insert(T::NAME, Arc::new(tool)).is_none()
    }

    /// Uses tools, one after the other, and answers each. A tool that is missing, fails or panics is an answer too.
    pub(crate) async fn apply(&self, run_id: &str, uses: Vec<ToolUse>) -> Vec<ToolResultBlock> {
        use futures::FutureExt;
        let mut results = Vec::with_capacity(uses.len());
        for wanted in uses {
            let call = ToolCall { id: format!("{run_id}:{}", wanted.id), input: wanted.input };
            let answer = match self.0.get(wanted.name.as_str()) {
                None => Err(format!("there is no tool `{}`", wanted.name)),
                Some(tool) => std::panic::AssertUnwindSafe(async { tool.call(call).await })
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Err(format!("the tool `{}` panicked", wanted.name))),
            };
            let (content, is_error) = answer.map_or_else(|text| (text, true), |text| (text, false));
            results.push(ToolResultBlock { kind: "tool_result".into(), tool_use_id: wanted.id, content, is_error });
        }
        results
    }
}

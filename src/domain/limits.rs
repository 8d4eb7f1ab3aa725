//! Every limit of the engine, with its unit. Over a limit is a typed refusal at the edge, never a cut.

/// Longest run id, in bytes.
pub const RUN_ID_BYTES: usize = 200;
/// Most tags of a run.
pub const TAGS: usize = 16;
/// Longest tag, in bytes.
pub const TAG_BYTES: usize = 64;
/// Largest metadata of a run, in bytes of JSON.
pub const METADATA_BYTES: usize = 4 << 10;
/// Largest input of a run, in bytes of JSON.
pub const INPUT_BYTES: usize = 8 << 20;
/// Largest state of a run, in bytes of JSON.
pub const STATE_BYTES: usize = 1 << 20;
/// Largest output of a run, in bytes of JSON.
pub const OUTPUT_BYTES: usize = 8 << 20;
/// Largest value carried from one step to the next, in bytes of JSON.
pub const CARRY_BYTES: usize = 1 << 20;
/// Largest model request, in bytes of JSON.
pub const REQUEST_BYTES: usize = 32 << 20;
/// Largest reply of a model, in bytes of JSON.
pub const REPLY_BYTES: usize = 64 << 20;
/// Largest payload of an event, in bytes of JSON.
pub const EVENT_PAYLOAD_BYTES: usize = 32 << 10;
/// Deepest nesting of a JSON value.
pub const JSON_DEPTH: usize = 100;
/// Deepest continuation stack, in frames.
pub const STACK_FRAMES: usize = 256;
/// Most bytes of JSON that the values carried by open calls may have together: the stack is rewritten at each step.
pub const STACK_BYTES: usize = 8 << 20;
/// Longest prompt of a person, in bytes.
pub const PROMPT_BYTES: usize = 32 << 10;
/// Most uses of tools in one turn of a conversation.
pub const TOOLS_PER_TURN: usize = 64;
/// Most turns with tools in one conversation.
pub const TURNS: u32 = 256;
/// Fewest and most branches of a fork.
pub const BRANCHES: std::ops::RangeInclusive<usize> = 2..=1_024;
/// Most events of one run.
pub const EVENTS_PER_RUN: i32 = 100_000;
/// Most events that a step may record by itself in one execution.
pub const RECORDS_PER_STEP: usize = 64;
/// Longest name of a workflow, a step or an event type, in bytes.
pub const NAME_BYTES: usize = 128;
/// Longest text kept of an error, in bytes; longer ones are cut with a mark, so that a failure can always be saved.
pub const ERROR_TEXT_BYTES: usize = 4 << 10;

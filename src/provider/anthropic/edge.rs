//! claudius types at the edge: requests are built with them, replies are read as them. Below, there is JSON only.

use crate::run::ModelRequest;
use claudius::MessageCreateParams;

impl From<MessageCreateParams> for ModelRequest {
    /// The request as claudius writes it. What cannot be written fails the run when the step returns, as any bad request does.
    fn from(params: MessageCreateParams) -> Self {
        Self::of(&params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Reply;
    use claudius::{KnownModel, Message, MessageParam, Model};

    #[test]
    fn a_request_of_claudius_is_one_of_ours() {
        let params =
            MessageCreateParams::new(64, vec![MessageParam::user("Hello")], Model::Known(KnownModel::ClaudeHaiku45));
        let text = ModelRequest::from(params).into_text().unwrap();
        let json: serde_json::Value = text.read().unwrap();
        assert_eq!(json["max_tokens"], 64);
        assert_eq!(json["messages"][0]["role"], "user");
    }

    #[test]
    fn a_reply_reads_as_a_message_of_claudius() {
        let message: Message = Reply::of_text("Hello").parse().unwrap();
        assert_eq!(message.content.len(), 1);
    }
}

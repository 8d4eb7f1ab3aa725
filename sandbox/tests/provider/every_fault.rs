//! Every named fault, once: it happens, and the ledger still agrees with what the batches say.

use super::openai_api::{chat_line, chat_lines};
use super::*;

/// Requests of which one is guilty and one is invalid.
fn items() -> Vec<Value> {
    let mut items: Vec<Value> = (0..5).map(|n| item(&format!("item-{n}"), &format!("Text number {n}."))).collect();
    items.push(item("item-5", "This one is guilty."));
    items.push(json!({"custom_id": "invalid", "params": {}}));
    items
}

/// What a client does with one API. Errors and refusals are what the tests are about, and are passed over.
struct Client<'a> {
    dialect: Dialect,
    api: &'a Api,
}

impl Client<'_> {
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Option<Reply> {
        match self.dialect {
            Dialect::Anthropic => self.api.try_usual(method, path, body).await.ok(),
            Dialect::OpenAi => self.api.ask(method, path, body).await.ok(),
        }
    }

    fn batches(&self) -> &'static str {
        if self.dialect == Dialect::OpenAi { "/v1/batches" } else { "/v1/messages/batches" }
    }

    async fn create(&self) {
        if self.dialect == Dialect::Anthropic {
            self.ask("POST", self.batches(), &json!({"requests": items()})).await;
            return;
        }
        let mut bad = chat_line("invalid", "x");
        bad["body"]["messages"] = json!([]);
        let content = format!("{}{bad}\n", chat_lines(6));
        let mut uploaded = None;
        for _ in 0..2 {
            uploaded = self.api.upload_as("in.jsonl", "batch", &content).await.ok().filter(|reply| reply.status == 200);
            if uploaded.is_some() {
                break;
            }
        }
        self.ask("POST", "/v1/batches", &super::openai_api::batch_of(&uploaded.unwrap().id())).await;
    }

    async fn live(&self) {
        match self.dialect {
            Dialect::Anthropic => self.ask("POST", "/v1/messages", &question("One.")).await,
            Dialect::OpenAi => self.ask("POST", "/v1/chat/completions", &chat_line("a", "One.")["body"]).await,
        };
    }

    /// The paths of a batch's results.
    fn results(&self, batch: &Value) -> Vec<String> {
        match self.dialect {
            Dialect::Anthropic => vec![format!("/v1/messages/batches/{}/results", batch["id"].as_str().unwrap())],
            Dialect::OpenAi => {
                let ids = ["output_file_id", "error_file_id"].into_iter().filter_map(|name| batch[name].as_str());
                ids.map(|id| format!("/v1/files/{id}/content")).collect()
            }
        }
    }

    /// A batch as it is, whatever the replies: asked until one is right.
    async fn batch(&self, id: &str) -> Value {
        let path = format!("{}/{id}", self.batches());
        let mut shown = None;
        for _ in 0..3 {
            let reply = self.ask("GET", &path, &Value::Null).await.filter(|reply| reply.status == 200);
            shown = shown.or(reply.and_then(|reply| serde_json::from_str::<Value>(&reply.body).ok()));
        }
        shown.unwrap()
    }
}

/// Two batches, of which one is canceled, and one call of everything else.
async fn play(client: &Client<'_>, control: &Control, late: bool) {
    client.create().await;
    // What never came to exist is created again; what exists late is waited for.
    if control.batches().is_empty() && !late {
        client.create().await;
    }
    control.wait_batches(1).await;
    client.ask("GET", client.batches(), &Value::Null).await;
    for id in control.batches() {
        control.finish(&id);
        control.wait_ended(&id).await;
        client.ask("GET", &format!("{}/{id}", client.batches()), &Value::Null).await;
        for path in client.results(&client.batch(&id).await) {
            client.ask("GET", &path, &Value::Null).await;
            client.ask("GET", &path, &Value::Null).await;
        }
    }
    let before = control.batches().len();
    client.create().await;
    let created = control.batches()[before..].to_vec();
    for id in created {
        let cancel = format!("{}/{id}/cancel", client.batches());
        for _ in 0..2 {
            client.ask("POST", &cancel, &Value::Null).await;
        }
        control.wait_ended(&id).await;
    }
    // Now there are two on the page.
    client.ask("GET", client.batches(), &Value::Null).await;
    client.live().await;
    let deleted =
        if client.dialect == Dialect::OpenAi { "/v1/files/file-x" } else { "/v1/messages/batches/msgbatch_x" };
    client.ask("DELETE", deleted, &Value::Null).await;
}

/// What is in the ledger for a batch is what the batch says has succeeded; somebody else's is not there.
async fn balanced(sandbox: &Sandbox, client: &Client<'_>, name: &str) {
    sandbox.control().clear();
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    for id in sandbox.control().batches() {
        let batch = client.batch(&id).await;
        let counts = &batch["request_counts"];
        let succeeded = counts.get("succeeded").or(counts.get("completed")).unwrap();
        let of_batch: Vec<_> = paid.iter().filter(|item| item.batch_id.as_deref() == Some(&*id)).collect();
        if foreign(client, &batch, name).await {
            assert_eq!(of_batch.len(), 0, "{name}: somebody else's money");
        } else {
            assert_eq!(json!(of_batch.len()), *succeeded, "{name}: {batch}");
        }
    }
}

/// Whether a batch is somebody else's, by its results.
async fn foreign(client: &Client<'_>, batch: &Value, name: &str) -> bool {
    if !name.contains("foreign_batch") {
        return false;
    }
    let results = client.ask("GET", &client.results(batch)[0], &Value::Null).await.unwrap();
    results.lines()[0]["custom_id"].as_str().unwrap().starts_with("somebody-else-")
}

async fn matrix(dialect: Dialect) {
    let api = Api::new("");
    for named in Fault::ALL.iter().filter(|named| named.is_of(dialect)) {
        let config = if dialect == Dialect::OpenAi { Config::openai() } else { Config::default() };
        let sandbox = Sandbox::start(config.processing(Duration::MAX)).await.unwrap();
        let api = api.at(sandbox.base_url());
        let control = sandbox.control();
        let client = Client { dialect, api: &api };
        // Not every download and page has what is to be spoilt.
        let several = matches!(named.operation, Operation::Results | Operation::List);
        let when = if several { When::Times(3) } else { When::Next };
        let faults = named.faults();
        let late = faults.iter().any(|fault| matches!(fault, Fault::LateCommit(_)));
        let inject = |fault| control.inject(named.operation, when, fault);
        let injected: Vec<_> = faults.into_iter().map(inject).collect();
        let releasing = tokio::spawn({
            let (control, operation) = (control.clone(), named.operation);
            async move {
                control.wait_served(operation, 1).await;
                control.release_all();
            }
        });
        play(&client, &control, late).await;
        for fault in &injected {
            assert!(fault.fired() > 0, "{} has not happened", named.name);
        }
        balanced(&sandbox, &client, named.name).await;
        releasing.await.unwrap();
        sandbox.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_anthropic_happens_and_the_ledger_stays_true() {
    matrix(Dialect::Anthropic).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_of_openai_happens_and_the_ledger_stays_true() {
    matrix(Dialect::OpenAi).await;
}

#[test]
fn names_are_unique_and_every_fault_survives_json() {
    let mut names = HashSet::new();
    for named in Fault::ALL {
        assert!(names.insert(named.name), "{} is there twice", named.name);
        for fault in named.faults() {
            let text = serde_json::to_string(&fault).unwrap();
            assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), fault, "{text}");
        }
    }
}

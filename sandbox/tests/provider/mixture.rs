//! Faults by rate, and the mixture of all that heal: the same at every start, and work ends.

use super::*;

/// Answers of a list that fails at a rate.
async fn statuses(seed: u64) -> Vec<u16> {
    let script = Script::default().on(Operation::List, When::Rate { per_mille: 300, seed }, Fault::status(500));
    let (_sandbox, api) = start(Config::default().script(script)).await;
    let mut statuses = Vec::new();
    for _ in 0..100 {
        statuses.push(api.list("").await.status);
    }
    statuses
}

#[tokio::test]
async fn a_rate_chooses_by_its_seed_alone() {
    let first = statuses(7).await;
    assert_eq!(first, statuses(7).await);
    assert_ne!(first, statuses(8).await);
    let failed = first.iter().filter(|status| **status == 500).count();
    assert!((15..=45).contains(&failed), "{failed} of 100");
}

#[tokio::test]
async fn rules_of_one_seed_meet_the_same_requests() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    let when = When::Rate { per_mille: 500, seed: 3 };
    let late = control.inject(Operation::Create, when, Fault::ListLag(Duration::MAX));
    let failing = control.inject(Operation::Create, when, Fault::AcceptThenStatus(500));
    let mut failed = 0;
    for _ in 0..20 {
        failed += usize::from(api.create_many_reply(1).await.status == 500);
    }
    assert!((1..20).contains(&failed));
    assert_eq!((late.fired(), failing.fired()), (failed, failed));
}

/// Asks for everything again until every answer is there: adopts whatever batch holds its requests, and never trusts a
/// reply that it cannot read.
async fn until_answered(api: &Api, texts: usize) -> usize {
    let mut answered: HashSet<String> = HashSet::new();
    let mut creates = 0;
    while answered.len() < texts {
        let open = (0..texts).map(|n| format!("item-{n}")).filter(|id| !answered.contains(id));
        let items: Vec<Value> = open.map(|id| item(&id, &format!("The text of {id}."))).collect();
        let _ = api.try_create(&items).await;
        creates += 1;
        assert!(creates < 500, "{} of {texts} answered", answered.len());
        let Ok(page) = api.try_usual("GET", "/v1/messages/batches?limit=1000", &Value::Null).await else { continue };
        let page: Value = serde_json::from_str(&page.body).unwrap_or_default();
        for batch in page["data"].as_array().unwrap_or(&vec![]) {
            let path = format!("/v1/messages/batches/{}/results", batch["id"].as_str().unwrap());
            let Ok(results) = api.try_bytes(&path).await else { continue };
            let lines = results.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            let done = lines.filter(|line| line["result"]["type"] == "succeeded");
            answered.extend(done.filter_map(|line| line["custom_id"].as_str().map(str::to_owned)));
        }
        answered.retain(|id| id.starts_with("item-"));
    }
    creates
}

#[tokio::test]
async fn work_ends_under_the_mixture_of_all_and_the_ledger_tells_what_it_cost() {
    for seed in [1, 2, 3] {
        let script = Script::all(Dialect::Anthropic, seed);
        let (sandbox, api) = start(Config::default().processing(Duration::ZERO).seed(seed).script(script)).await;
        let mut fired = 0;
        for _ in 0..10 {
            until_answered(&api, 10).await;
            fired = sandbox.control().faults().iter().map(|rule| rule.fired).sum();
        }
        assert!(fired > 5, "seed {seed}: only {fired} faults");
        let control = sandbox.control();
        control.clear();
        let batches = control.batches();
        for id in &batches {
            control.wait_ended(id).await;
        }
        let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
        assert!(paid.iter().all(|item| item.custom_id.as_ref().is_some_and(|id| id.starts_with("item-"))));
        for id in &batches {
            let counts = api.retrieve(id).await.json()["request_counts"].clone();
            let of_batch = paid.iter().filter(|item| item.batch_id.as_ref() == Some(id)).count();
            let foreign = of_batch == 0 && api.results(id).await.body.contains("somebody-else-0");
            assert!(foreign || counts["succeeded"] == of_batch, "seed {seed}: {id} {counts}, paid {of_batch}");
        }
    }
}

//! Paging in both directions.

use super::*;

/// Five batches, newest first.
async fn five(api: &Api) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, api.create_many(1).await);
    }
    ids
}

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|batch| batch["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_empty_list_has_no_first_and_no_last() {
    let (_sandbox, api) = slow().await;
    assert_eq!(api.list("").await.json(), json!({"data": [], "has_more": false, "first_id": null, "last_id": null}));
}

#[tokio::test]
async fn it_is_newest_first_and_pages_to_the_older() {
    let (_sandbox, api) = slow().await;
    let all = five(&api).await;
    let page = api.list("?limit=2").await.json();
    assert_eq!(ids(&page), all[0..2]);
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!(all[0]), &json!(all[1])));
    assert_eq!(page["has_more"], true);
    let page = api.list(&format!("?limit=2&after_id={}", all[1])).await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![&*all[2], &*all[3]], &json!(true)));
    let page = api.list(&format!("?limit=2&after_id={}", all[3])).await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![&*all[4]], &json!(false)));
}

#[tokio::test]
async fn it_pages_to_the_newer_with_the_nearest_ones() {
    let (_sandbox, api) = slow().await;
    let all = five(&api).await;
    let page = api.list(&format!("?limit=2&before_id={}", all[4])).await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![&*all[2], &*all[3]], &json!(true)));
    let page = api.list(&format!("?limit=2&before_id={}", all[2])).await.json();
    assert_eq!((ids(&page), &page["has_more"]), (vec![&*all[0], &*all[1]], &json!(false)));
    let page = api.list(&format!("?before_id={}", all[0])).await.json();
    assert_eq!(ids(&page), Vec::<&str>::new());
}

#[tokio::test]
async fn the_page_size_has_a_default_and_bounds() {
    let (_sandbox, api) = start(Config::default().processing(Duration::MAX).list_page(3)).await;
    five(&api).await;
    assert_eq!(ids(&api.list("").await.json()).len(), 3);
    assert_eq!(ids(&api.list("?limit=1000").await.json()).len(), 5);
    for limit in ["0", "1001", "-1", "many", "1&limit=2"] {
        let reply = api.list(&format!("?limit={limit}")).await;
        assert_eq!((reply.status, reply.error_type()), (400, "invalid_request_error".to_owned()), "{limit}");
    }
}

#[tokio::test]
async fn a_cursor_must_be_known_and_only_one() {
    let (_sandbox, api) = slow().await;
    let id = api.create_many(1).await;
    assert_eq!(api.list("?after_id=msgbatch_x").await.status, 400);
    assert_eq!(api.list(&format!("?after_id={id}&before_id={id}")).await.status, 400);
}

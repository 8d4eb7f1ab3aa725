//! Whether a batch may be paid for: before it is sealed, each of its requests is held against the budgets that it concerns, by what it
//! may come to cost at most. What fits is reserved; what does not leaves the batch, and is held until its budget has room.

use super::sending::Sending;
use crate::store::{Concern, Decision, StoreError};
use std::collections::HashMap;

/// Requests read per statement.
const PAGE: i64 = 200;
/// Decisions per batch, when others decide by the same budgets at the same time.
const TRIES: u32 = 5;

/// Takes the items in order; one that any of its budgets has no room for takes nothing of the others.
fn decide(budgets: &[Concern], estimates: &[Option<i64>]) -> Decision {
    let mut concern: HashMap<i32, Vec<usize>> = HashMap::new();
    for (place, budget) in budgets.iter().enumerate() {
        for item in &budget.items {
            concern.entry(*item).or_default().push(place);
        }
    }
    let mut decision = Decision { sums: vec![0; budgets.len()], ..Decision::default() };
    for (item, estimate) in (0..).zip(estimates) {
        let places = concern.get(&item).map_or(&[][..], Vec::as_slice);
        let full = places.iter().find(|place| {
            let (budget, taken) = (&budgets[**place], decision.sums[**place]);
            match estimate {
                Some(estimate) => budget.room.saturating_sub(taken) < *estimate,
                None => !budget.unpriced || budget.room < taken,
            }
        });
        match full {
            Some(place) => {
                decision.held.push(item);
                decision.by.push(budgets[*place].budget);
                decision.estimates.push(*estimate);
            }
            None => places.iter().for_each(|place| {
                decision.sums[*place] = decision.sums[*place].saturating_add(estimate.unwrap_or(0));
            }),
        }
    }
    decision
}

impl Sending<'_> {
    /// Reserves what the batch may cost, and takes out what is over budget. Answers how many requests are left, of so many; `None`: its
    /// budgets changed again and again, or the lease is lost.
    pub(super) async fn fund(&self, batch: i64, items: i32) -> Result<Option<i32>, StoreError> {
        let mut estimates = None;
        for _ in 0..TRIES {
            let budgets = self.store().concerned(batch, self.lease.account).await?;
            if budgets.is_empty() {
                return Ok(Some(items));
            }
            if estimates.is_none() {
                estimates = Some(self.estimates(batch, items).await?);
            }
            let decision = decide(&budgets, estimates.as_deref().unwrap_or_default());
            if let Some(left) = self.store().fund(batch, self.lease, &budgets, &decision).await? {
                if !decision.held.is_empty() {
                    tracing::info!(provider = self.name, requests = decision.held.len(), "requests are over budget");
                }
                return Ok(Some(left));
            }
        }
        Ok(None)
    }

    /// What each request of the batch may come to cost.
    async fn estimates(&self, batch: i64, items: i32) -> Result<Vec<Option<i64>>, StoreError> {
        let mut estimates = Vec::new();
        while estimates.len() < items as usize {
            let page = self.store().bodies(batch, estimates.len() as i32, PAGE).await?;
            if page.is_empty() {
                return Err(StoreError::Corrupt("requests of a batch are missing".into()));
            }
            estimates.extend(page.iter().map(|(_, request)| self.provider.estimate(request)));
        }
        Ok(estimates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(budget: i32, room: i64, items: &[i32]) -> Concern {
        Concern { budget, version: 0, room, unpriced: true, items: items.to_vec() }
    }

    fn held(decision: &Decision) -> Vec<(i32, i32)> {
        decision.held.iter().copied().zip(decision.by.iter().copied()).collect()
    }

    #[test]
    fn what_fits_is_reserved_and_a_smaller_one_may_pass() {
        let decision = decide(&[budget(7, 10, &[0, 1, 2])], &[Some(6), Some(5), Some(4)]);
        assert_eq!((held(&decision), decision.sums), (vec![(1, 7)], vec![10]));
    }

    #[test]
    fn what_one_budget_holds_takes_nothing_of_the_others() {
        let budgets = [budget(1, 100, &[0, 1]), budget(2, 3, &[0])];
        let decision = decide(&budgets, &[Some(4), Some(4)]);
        assert_eq!((held(&decision), decision.sums), (vec![(0, 2)], vec![4, 0]));
    }

    #[test]
    fn what_concerns_no_budget_goes() {
        let decision = decide(&[budget(1, 0, &[1])], &[Some(9), Some(1), None]);
        assert_eq!(held(&decision), [(1, 1)]);
    }

    #[test]
    fn unknown_prices_go_or_not_as_the_budget_says() {
        assert_eq!(held(&decide(&[budget(1, 0, &[0])], &[None])), []);
        assert_eq!(held(&decide(&[budget(1, -1, &[0])], &[None])), [(0, 1)], "nothing goes when it is overdrawn");
        let strict = Concern { unpriced: false, ..budget(1, 9, &[0]) };
        assert_eq!(held(&decide(&[strict], &[None])), [(0, 1)]);
    }
}

//! Unusual copies: of an origin that can have no job.

use super::*;

#[tokio::test]
async fn a_copy_whose_origin_can_have_no_job_holds_nothing_up() {
    let tables = with_copies(2, Duration::ZERO);
    let copies = copies(&tables, "keep", Duration::ZERO);
    tables.set(ORIGINS, &origin_key(1), Some(product(1, "Chai")));
    // Each quotation mark takes two bytes as text.
    let unfit = Item::new().with("line", "line-000a").with("productID", "\"".repeat(1020));
    tables.set(COPIES, "line-000a", Some(unfit));
    let deadline = Deadline::after(Duration::from_secs(60));
    let report = copies.check_sample(7, deadline).await.unwrap();
    let expected = SelfCheckReport { rules: 1, copies: 3, repaired: 2, postponed: 0, refused: 1 };
    assert_eq!(report, expected);
    assert_eq!(names(&tables), ["Chai", "-", "Chai"]);
    let request = RepairRequest::read(r#"{"repair":{"rule":"products"}}"#).unwrap().unwrap();
    let answer = copies.repair(&request, deadline).await.unwrap();
    assert_eq!(answer.checked, SelfCheckReport { repaired: 0, ..expected });
}

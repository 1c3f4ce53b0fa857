use varve::web::{Error, Store};

pub async fn count_visit() -> Result<u64, Error> {
    let mut store = Store::open("site").await?;
    let before =
        store.get("visits")?.map_or(0, |value| value.try_into().map_or(0, u64::from_le_bytes));
    store.set("visits", (before + 1).to_le_bytes())?;
    store.close().await?;
    Ok(before + 1)
}

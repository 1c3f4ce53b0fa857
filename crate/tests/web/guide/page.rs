use varve::web::{Error, Reader, load};

pub async fn visits_so_far() -> Result<u64, Error> {
    let Some(bytes) = load("site").await? else { return Ok(0) };
    let reader = Reader::from_bytes(&bytes)?;
    Ok(reader.get("visits").map_or(0, |value| value.try_into().map_or(0, u64::from_le_bytes)))
}

import { nameIs, nameOf, PRODUCT_NAME, type Product, stockOf, takeOne } from "../drop.js";

const NAME = new TextEncoder().encode(PRODUCT_NAME);

/** Takes one pair from a product's bytes. Returns false if there is none. */
export function takeFrom(record: Uint8Array): boolean {
  if (stockOf(record) === 0 || !nameIs(record, NAME)) return false;
  takeOne(record);
  return true;
}

/** Takes one pair from a product that is an object. Returns false if there is none. */
export function takeOneObject(product: Product): boolean {
  if (product.stock === 0 || product.name !== PRODUCT_NAME) return false;
  product.stock -= 1;
  return true;
}

export function productOf(record: Uint8Array): Product {
  return { stock: stockOf(record), name: nameOf(record) };
}

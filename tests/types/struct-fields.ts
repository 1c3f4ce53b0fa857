/** The types of fields, also of flattened ones. This file is compiled and never run. */

import { flatten, type Infer, type Input, option, str, struct, u8, u16 } from "varve/struct";

const Page = struct("Page", { limit: u8, after: option(u8) });
const Search = struct("Search", { first: u16, query: str, page: flatten(Page) });

/** Exactly these fields, without an index signature. */
const plain: Infer<typeof Search> = { first: 1, query: "a", limit: 1, after: undefined };
const input: Input<typeof Search> = plain;
Search.encode(input);

interface Declared {
  first: number;
  query: string;
  limit: number;
}
declare const declared: Declared;
Search.encode(declared);

// @ts-expect-error not a field
Search.encode({ first: 1, query: "", limit: 1, other: 1 });
// @ts-expect-error a flattened field is missing
Search.encode({ first: 1, query: "" });
// @ts-expect-error a flattened struct has no name of its own
Search.encode({ first: 1, query: "", page: { limit: 1 } });
// @ts-expect-error not a field of a view
Search.view(new Uint8Array()).other;
// @ts-expect-error not a field of a copy
plain.other;
// @ts-expect-error only a struct can be flattened
struct("Wrong", { page: flatten(u8) });

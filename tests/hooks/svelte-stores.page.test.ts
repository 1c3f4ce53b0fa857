/** `varve/svelte` with what Svelte has for stores, which components use too. It runs with every version of Svelte. */

import { derived, get, writable } from "svelte/store";
import { useRange, useStatus, useValue } from "varve/svelte";
import { expect, onTestFinished, test } from "vitest";
import { turn, until } from "../support/values.js";
import { counted, everySource, fill, key, rename } from "./support.js";

everySource("stores of Svelte", (make) => {
  test("they are stores to Svelte, which derives others from them and ends them", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const mark = writable("!");
    const name = derived([useValue(source, key(1)), mark], ([{ value, isPending }, sign]) =>
      isPending ? "pending" : `${value?.name}${sign}`,
    );
    const names = derived(useRange(source, { limit: 2 }), ({ rows }) =>
      rows.map(([, product]) => product.name).join(),
    );
    const seen: string[] = [];
    const ends = [name.subscribe((one) => seen.push(one)), names.subscribe(() => {})];
    const end = () => {
      for (const one of ends) one();
    };
    onTestFinished(end);
    await until(() => get(name) === "product 1!" && get(names) === "product 0,product 1");
    await rename(shop, 1, "changed");
    await until(() => get(name) === "changed!" && get(names) === "product 0,changed");
    mark.set("?");
    expect(seen).toStrictEqual(["pending", "product 1!", "changed!", "changed?"]);
    expect(get(useStatus(shop.to)).state).toBe("open");
    expect(counts).toStrictEqual({ begun: 2, open: 2 });
    end();
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 2, open: 0 });
  });
});

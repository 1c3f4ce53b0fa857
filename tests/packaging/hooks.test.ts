/** The components of docs/hooks.md run as printed, each with its framework, in Chromium. */

import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compileScript, parse } from "@vue/compiler-sfc";
import { compile as compileSvelte } from "svelte/compiler";
import { describe, expect, onTestFinished, test } from "vitest";
import { copied, developed, inChromium } from "../fixtures/fixture.js";
import { prepared, shown, shownIn } from "./documented-programs.js";
import { command, compile, project, root } from "./project.js";

const PAGE = "docs/hooks.md";

/** What the plugins of Vue and of Svelte for Vite do. */
const components = {
  name: "components",
  transform(source: string, path: string) {
    if (path.endsWith(".vue")) {
      const { descriptor } = parse(source, { filename: path });
      const { content } = compileScript(descriptor, { id: "shop", inlineTemplate: true });
      return { code: content, map: null };
    }
    if (!path.endsWith(".svelte")) return undefined;
    const { js } = compileSvelte(source, { filename: "Shop.svelte", generate: "client" });
    return { code: js.code, map: null };
  },
};

/** What puts the component of a file on the page. */
const MOUNTS = {
  "Shop.tsx": `
    import { createElement } from "react";
    import { createRoot } from "react-dom/client";
    import { Shop } from "./Shop";
    createRoot(app).render(createElement(Shop, { id: "yeezy" }));`,
  "Shop.vue": `
    import { createApp } from "vue";
    import Shop from "./Shop.vue";
    createApp(Shop, { id: "yeezy" }).mount(app);`,
  "Shop.svelte": `
    import { mount } from "svelte";
    import Shop from "./Shop.svelte";
    mount(Shop, { target: app, props: { id: "yeezy" } });`,
  "Shop.js": `
    import { render } from "solid-js/web";
    import { Shop } from "./Shop";
    render(() => Shop({ id: "yeezy" }), app);`,
};

const LIBRARIES = {
  "Shop.tsx": ["react", "react-dom", "scheduler"],
  "Shop.vue": ["vue", "@vue"],
  "Shop.svelte": ["svelte", "esm-env", "clsx"],
  "Shop.js": ["solid-js", "seroval", "seroval-plugins", "csstype"],
};

function linked(folder: string, libraries: readonly string[]): void {
  mkdirSync(join(folder, "node_modules"), { recursive: true });
  for (const library of libraries) {
    const link = join(folder, "node_modules", library);
    symlinkSync(root("node_modules", library), link);
    onTestFinished(() => rmSync(link));
  }
}

describe("the programs of docs/hooks.md", () => {
  test("the list is complete", () => {
    const files = [
      "db.ts",
      "shop.ts",
      "Shop.tsx",
      "page.mjs",
      "Shop.vue",
      "Shop.svelte",
      "Shop.js",
    ];
    expect(shownIn(PAGE).map(({ file }) => file)).toStrictEqual(files);
  });

  for (const file of ["Shop.tsx", "Shop.vue", "Shop.svelte", "Shop.js"] as const) {
    test(`${file} shows a record, a range of an index and what changes in them`, async () => {
      const folder = copied();
      linked(project(), LIBRARIES[file]);
      const first = `
        import { products } from "./shop";
        const app = document.body.appendChild(document.createElement("div"));
        globalThis.products = products;
        await products.set("yeezy", { stock: 3, name: "Boost 350" });
        await products.set("other", { stock: 100, name: "Other" });
        ${MOUNTS[file].replaceAll(
          /import (.*?) from (".*?");/g,
          (_, names: string, from: string) =>
            names.startsWith("{")
              ? `const ${names} = await import(${from});`
              : `const { default: ${names} } = await import(${from});`,
        )}`;
      const files = {
        "first.ts": first,
        "db.ts": shown(PAGE, "db.ts").source,
        "shop.ts": shown(PAGE, "shop.ts").source,
        [file]: shown(PAGE, file).source,
        "tsconfig.json": '{ "compilerOptions": { "jsx": "react-jsx" } }',
        "index.html": '<!doctype html><body><script type="module" src="/first.ts"></script>',
      };
      for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
      const url = await developed(folder, { plugins: [components] });
      await inChromium(async (page) => {
        await page.goto(url);
        const shows = (title: string, ...rows: string[]) =>
          page.waitForFunction(`(() => {
            const texts = (tag) => [...document.querySelectorAll(tag)].map((one) => one.textContent.trim());
            return document.querySelector("main")?.title === "open" &&
              texts("h1").join() === ${JSON.stringify(title)} && texts("li").join() === ${JSON.stringify(rows.join())};
          })()`);
        await shows("Boost 350", "Boost 350: 3");
        await page.evaluate('products.set("other", { stock: 2, name: "Other" })');
        await shows("Boost 350", "Other: 2", "Boost 350: 3");
        await page.evaluate('products.set("yeezy", { stock: 12, name: "Boost" })');
        await shows("Boost", "Other: 2");
      });
    });
  }

  test("page.mjs renders a record on a server", async () => {
    const { folder, commandLine } = await prepared(shown(PAGE, "page.mjs"));
    linked(project(), ["react", "react-dom", "scheduler"]);
    expect(command(commandLine, folder).trim()).toBe("<h1>Boost 350</h1>");
  });

  test("the page lists every function, and each framework has all of them", async () => {
    const text = readFileSync(root(PAGE), "utf8");
    for (const name of ["react", "vue", "svelte", "solid"] as const) {
      const found = Object.keys(await import(root(`dist/extensions/hooks/${name}.js`)));
      expect(found.sort(), name).toStrictEqual(["useRange", "useStatus", "useValue"]);
      expect(
        found.every((one) => text.includes(`| \`${one}(`)),
        name,
      ).toBe(true);
    }
  });
});

test("the hooks' results have the types of the collection, and wrong ranges and keys are refused", () => {
  const program = `
    import type { Client, Collection, Database, RemoteCollection } from "varve";
    import { useRange, useStatus, useValue } from "varve/react";
    import * as solid from "varve/solid";
    import * as svelte from "varve/svelte";
    import { json, str, struct, u32 } from "varve/struct";
    import * as vue from "varve/vue";

    declare const db: Database;
    declare const client: Client;
    const Product = struct("Product", { stock: u32, name: str });
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    const pairs = db.collection("pairs", json<{ n: number }>(), { key: [str, u32] });
    declare const remote: RemoteCollection<string, string, { stock: number }, { stock: number }, { byStock: number }>;

    const stock: number | undefined = useValue(products, "a").value?.stock;
    const far: number | undefined = useValue(remote, "a", { suspense: true }).value?.stock;
    const n: number | undefined = useValue(pairs, ["a", 1]).value?.n;
    const first: string | undefined = useValue(products.index.byStock, 5).value?.name;
    const bytes: Uint8Array | undefined = useValue(db, "a").value ?? useValue(client, "a").value;
    const rows: readonly (readonly [string, { stock: number }])[] = useRange(remote.index.byStock, { lt: 5 }).rows;
    const keys: string[] = useRange(products, { where: ({ name }, key) => name > key }).rows.map(([key]) => key);
    const parts: [string, number][] = useRange(pairs, { prefix: ["a"] }).rows.map(([key]) => key);
    const none: typeof products | undefined = undefined;
    useValue(none as typeof products | undefined, undefined);
    const state: "idle" | "open" | undefined = useStatus(client).state === "open" ? "open" : undefined;
    useStatus(db);
    const inVue: number | undefined = vue.useValue(() => products, () => "a").value.value?.stock;
    const rowsInVue: string[] = vue.useRange(products, () => ({ gte: "a" })).value.rows.map(([, { name }]) => name);
    const inSolid: number | undefined = solid.useValue(products, () => "a")().value?.stock;
    solid.useRange(remote, { gte: "a", where: ({ stock }) => stock > 0 })().rows.map(([key]) => key.length);
    svelte.useRange(products).subscribe(({ rows }) => rows.map(([key, { name }]) => key + name));

    // @ts-expect-error a key of this collection is text
    useValue(products, 5);
    // @ts-expect-error a tuple needs all of its parts
    useValue(pairs, ["a"]);
    // @ts-expect-error there is no such bound
    useRange(products, { above: "a" });
    // @ts-expect-error a bound of this index is a number
    useRange(products.index.byStock, { gte: "a" });
    // @ts-expect-error a snapshot never changes
    useRange(db.snapshot().collection("products", Product), {});
    // @ts-expect-error rows are not to be changed
    useRange(products).rows.push(["a", { stock: 1, name: "a" }]);
  `;
  const options = {
    module: "ESNext",
    moduleResolution: "Bundler",
    lib: ["ES2023", "ESNext.Disposable", "DOM"],
    skipLibCheck: true,
    exactOptionalPropertyTypes: true,
    paths: { vue: [root("node_modules/vue")] },
  };
  expect(compile(program, options)).toBe("");
});

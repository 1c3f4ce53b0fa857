import { connect } from "varve";
import { onTestFinished } from "vitest";
import { idbKeyvalTests } from "../adapters/idb-keyval.js";
import { context } from "../support/context.js";

let count = 0;

idbKeyvalTests("a page", async () => {
  count += 1;
  const file = `${context().root}/dist/client/worker/index.js`;
  const client = connect(`page-keyval-${count}`, {
    worker: () => new Worker(file, { type: "module" }),
  });
  onTestFinished(() => client.close());
  return client;
});

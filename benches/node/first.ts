import { file, open } from "varve";
import { productDrop } from "../../demo/drop.js";

// Runs one drop in the given folder and prints its result.
const directory = process.argv[2];
if (directory === undefined) throw new Error("the folder is missing");
const db = await open("drop", { storage: file(directory) });
const result = productDrop(db, { cycles: 20_000 });
await db.close();
process.stdout.write(JSON.stringify(result));

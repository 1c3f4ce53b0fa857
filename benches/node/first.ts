import { file, open } from "varve";
import { productDrop } from "../../demo/drop.js";

// A process that makes one drop in the folder that it is given, and prints how it went.
const directory = process.argv[2];
if (directory === undefined) throw new Error("the folder is missing");
const db = await open("drop", { storage: file(directory) });
const result = productDrop(db, { cycles: 20_000 });
await db.close();
process.stdout.write(JSON.stringify(result));

/** varve/json: values of schemas as JSON, from the bytes to the text and back. */

export { MalformedValueError } from "./errors/index.js";
export {
  fromJson,
  type HasJson,
  type JsonOptions,
  jsonReader,
  jsonWriter,
  toJson,
} from "./struct/json/index.js";

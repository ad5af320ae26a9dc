// Asks a server through the clients of npm, each as its readme says, and prints what they give as JSON.
// Arguments: the server's URL, a text.
import * as deepl from "deepl-node";
import { translate as libretranslate } from "libretranslate";
import { libreTranslate } from "libretranslate-ts";
import translate from "translate";

const [url, text] = process.argv.slice(2);
const found = {};
const failing = async (promise) => promise.then(() => "no error", (error) => error.message);

libreTranslate.setApiEndpoint(url);
found["libretranslate-ts"] = await libreTranslate.translate(text, "de", "en");
found["libretranslate-ts alternatives"] = await libreTranslate.translate(text, "auto", "en", 2);
found["libretranslate-ts error"] = await libreTranslate.translate(text, "de", "xx");
found["libretranslate-ts detect"] = await libreTranslate.detect(text);
found["libretranslate-ts languages"] = await libreTranslate.listLanguages();

translate.engine = "libre";
translate.url = `${url}/translate`;
found["translate"] = await translate(text, { from: "de", to: "en" });
found["translate error"] = await failing(translate(text, { from: "de", to: "fr" }));

found["libretranslate"] = await libretranslate({ query: text, source: "de", target: "en", apiurl: url });
found["libretranslate auto"] = await libretranslate({ query: text, target: "en", apiurl: url });

const client = new deepl.Translator("any key", { serverUrl: url, maxRetries: 0 });
found["deepl-node"] = await client.translateText([text, text], null, "en-US");
found["deepl-node usage"] = (await client.getUsage()).character;
found["deepl-node sources"] = await client.getSourceLanguages();
found["deepl-node targets"] = await client.getTargetLanguages();
found["deepl-node error"] = await failing(client.translateText(text, null, "fr"));

console.log(JSON.stringify(found));

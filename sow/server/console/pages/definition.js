// What a topic is: its definition as the server understands it, without what moves.

import {html, problem, useEffect, useState} from "../parts.js";
import {linkTo} from "../address.js";
import {read, topicPath} from "../server.js";
import {Absent, isAbsent} from "../states.js";
import {Head} from "../tabs.js";
import * as format from "../format.js";

const list = (values) => values?.map((one) => (Array.isArray(one) ? one.join(" ") : one)).join(", ");

// What there is to say, each with its heading; what a topic has not is left out.
function facts(topic) {
  const {queue = {}, series} = topic;
  const topics = topic.underlyings ?? (topic.underlying ? [topic.underlying] : []);
  return [
    ["kind", topic.kind],
    ["message type", topic.message_type],
    ["key", list(topic.keys) || "given by publishers"],
    ["key domain", topic.key_domain],
    ["of pattern", topic.of_pattern],
    ["pattern", topic.pattern],
    ["made of", topics.length ? topics.map((name) => html`<a key=${name} href=${linkTo("definition", name)}>${name}</a> `) : null],
    ["interval", topic.interval_ms && format.duration(topic.interval_ms)],
    ["filter", topic.filter],
    ["projection", list(topic.projection)],
    ["grouping", list(topic.grouping)],
    ["engine", topic.engine],
    ["hash indexes", list(topic.indexes)],
    ["columns that queries have built", list(topic.memos)],
    ["series", series && `${format.count(series.limit)} events of each record`],
    ["queues", queue.conflation_policy && `${queue.conflation_policy}, ${queue.placement}`],
    ["match", list(queue.match)],
    ["merges", queue.merges?.length ? format.json(queue.merges) : null],
    ["merger", queue.merger],
    ["stopped", topic.stopped],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "");
}

export function Definition({name, params}) {
  const [topic, setTopic] = useState(null);
  const [wrong, setWrong] = useState(null);
  useEffect(() => {
    read(topicPath(name)).then(setTopic, (error) => {
      setWrong(error);
      if (!isAbsent(error)) problem.value = error;
    });
  }, [name]);
  return html`<${Head} page="definition" name=${name} params=${params} topic=${topic} />
    <${Absent} name=${name} wrong=${wrong} />
    ${topic &&
    html`<dl class="facts panel padded" id="definition">
      ${facts(topic).map(([what, value]) => html`<dt key=${what}>${what}</dt><dd>${value}</dd>`)}
    </dl>`}`;
}

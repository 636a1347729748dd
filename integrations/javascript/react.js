/* A live view as a hook of React's: no build step, no JSX, nothing but the two hooks below.
 *
 * The view begins with the component and ends with it; another client, topic or option is another
 * view, until which the records of the one before are shown. Changes that come within one frame of
 * the screen are drawn together.
 */
import { useEffect, useState } from "react";

const NOTHING = { rows: [], order: [], error: null, ready: false };

/** The records of a topic as they are now. `sow` is what `connect` resolves to, or null until then;
 * `options` are those of `live`. */
export function useLive(sow, topic, options = {}) {
  const [shown, show] = useState(NOTHING);
  const text = JSON.stringify(options); // each rendering makes other objects, of the same text

  useEffect(() => {
    if (!sow) return undefined;
    let view = null;
    let frame = 0;
    let isOver = false;
    const fail = (error) => isOver || show((held) => ({ ...held, error, ready: false }));
    const draw = () => {
      frame = 0;
      show({ rows: view.rows, order: view.order, error: null, ready: true });
    };
    sow.live(topic, JSON.parse(text)).then((live) => {
      if (isOver) return live.close();
      view = live;
      live.onchange = () => (frame ||= requestAnimationFrame(draw));
      live.onend = ({ error, detail, reason }) => fail(error ?? new Error(detail || reason));
      return draw();
    }, fail);
    return () => {
      isOver = true;
      cancelAnimationFrame(frame);
      view?.close();
    };
  }, [sow, topic, text]);

  return shown;
}

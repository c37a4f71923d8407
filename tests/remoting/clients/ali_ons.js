// The npm package `ali-ons` against a server: node ali_ons.js ADDRESS send TOPIC COUNT | push TOPIC GROUP COUNT [TAGS]
'use strict';

const { Consumer, Message, Producer } = require('ali-ons');

const [ address, command, ...rest ] = process.argv.slice(2);
const httpclient = { request: async () => ({ status: 404 }) }; // the address is given: nobody is asked for it
const quiet = { info() {}, warn() {}, debug() {}, error: (...what) => console.error(...what) };
const common = { httpclient, nameSrv: address, logger: quiet };
const tell = facts => console.log(JSON.stringify(facts));
const pause = ms => new Promise(resolve => setTimeout(resolve, ms));

async function send(topic, count) {
  const producer = new Producer({ ...common, producerGroup: 'node-producer' });
  await producer.ready();
  for (let number = 0; number < Number(count); number++) {
    const message = new Message(topic, `tag${number % 2}`, `node ${number}`);
    message.keys = [ `node-${number}` ];
    const result = await producer.send(message);
    tell({ id: result.msgId, status: result.sendStatus });
  }
  await producer.close();
}

async function push(topic, group, count, tags) {
  const consumer = new Consumer({ ...common, consumerGroup: group });
  let seen = 0;
  consumer.subscribe(topic, tags || '*', async message => {
    seen++;
    tell({ body: message.body.toString(), queue: message.queueId, offset: message.queueOffset, tags: message.tags });
  });
  await consumer.ready();
  for (let waited = 0; seen < Number(count) && waited < 60000; waited += 50) await pause(50);
  await pause(3000); // none comes twice
  await consumer.close();
}

(command === 'send' ? send : push)(...rest).then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});

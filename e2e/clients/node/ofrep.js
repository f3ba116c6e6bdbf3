// Reads flags through OpenFeature's SDK for servers and its OFREP provider.
const { OFREPProvider } = require('@openfeature/ofrep-provider');
const { OpenFeature } = require('@openfeature/server-sdk');
const { answer } = require('./plan.js');
const { asker } = require('./questions.js');

answer(async (plan) => {
  // This version of the provider does not read the variable itself.
  const endpoint = process.env.OFREP_ENDPOINT;
  const client = async (domain, baseUrl, key) => {
    const headers = key ? [['X-API-Key', key]] : [];
    await OpenFeature.setProviderAndWait(domain, new OFREPProvider({ baseUrl, headers }));
    return OpenFeature.getClient(domain);
  };
  const context = (name) => {
    const { identifier, traits } = plan.subjects[name] ?? {};
    return { targetingKey: identifier, ...traits };
  };
  const ask = asker((client, method, question) =>
    client[method](question.flag, question.default, context(question.subject)),
  );

  const plain = await client('plain', endpoint);
  const [first] = plan.questions;
  const secret = { flag: 'fraud_threshold', type: 'integer', default: 1, subject: 'for servers' };
  const answers = [];
  for (const question of plan.questions) {
    answers.push(await ask(plain, question));
  }
  return {
    questions: answers,
    metadata: (await plain.getNumberDetails('max_items', 0, context('nobody special'))).flagMetadata,
    server_key: await ask(await client('server', endpoint, plan.server_key), secret),
    wrong_key: await ask(await client('wrong', endpoint, 'harbour-client-key-of-another'), first),
    server_down: await ask(await client('down', plan.nobody), first),
  };
});

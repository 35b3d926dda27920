"""The AMQP 1.0 gateway: foreign clients send to topics and receive from them."""
